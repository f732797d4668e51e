"""Where agents run and who starts them: this machine, or the nodes of a Ray cluster."""
