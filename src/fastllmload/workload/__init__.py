"""Workloads: what prompts and answers are, how long, in which order."""
