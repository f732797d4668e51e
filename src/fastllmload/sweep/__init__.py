"""Sweeps: one run for each combination of options, one table of all."""
