"""The simulated engine: a server whose truth is known."""
