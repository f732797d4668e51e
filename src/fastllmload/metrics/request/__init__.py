"""Metrics with one value per request: TTFT, E2E, TPOT, token rate."""
