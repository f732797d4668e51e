"""Percentiles, moments and the shape of a sample."""
