"""A run over many hosts: the agents on them, the links to them, and the fleet that their workers form."""
