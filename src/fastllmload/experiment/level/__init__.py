"""One load level: its settings, its run, what it shows, and the decision on it."""
