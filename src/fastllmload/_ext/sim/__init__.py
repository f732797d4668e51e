"""The simulated engine in its own time: no socket, no clock."""
