"""Metrics of a complete run: the measurement window, throughput, success, cost, steadiness, bounds."""
