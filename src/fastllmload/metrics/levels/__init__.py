"""Metrics over several load levels, runs or request classes."""
