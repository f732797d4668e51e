"""Preparation of the system before a level is measured: hooks, restarts, cache fill, warm-up."""
