"""Arrival processes: when requests are due, drawn from a seed before time zero."""
