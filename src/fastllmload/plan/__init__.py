"""The plan of a run: which request is sent when, with which body; complete before time zero."""
