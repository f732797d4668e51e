"""Intervals, tests and checks for latencies that depend on each other; numpy alone.

The unit is the request (or the run), never the token. What the data cannot carry is `NotEstimable`, with what would be
enough. Which functions there are: docs/internals.md; how well their intervals cover: docs/statistics.md.
"""
