"""The simulated engine's server: connections, the bytes of its replies, faults, the log of what it did."""
