"""Intervals, tests and checks for latencies that depend on each other; numpy alone.

The unit is the request (or the run), never the token. A figure that the data cannot support is `NotEstimable`, with the
number of requests that would be enough. Functions: docs/internals.md; measured coverage: docs/statistics.md.
"""
