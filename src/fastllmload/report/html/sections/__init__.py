"""The sections of the HTML page of a run, one module each."""
