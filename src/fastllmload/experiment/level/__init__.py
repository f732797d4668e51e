"""One load level: its settings, its run, its evidence, and the decision on it."""
