"""The plan of a run: instants and bodies of all requests, complete before time zero."""
