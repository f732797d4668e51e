"""The run's one clock, for Python callers: CLOCK_MONOTONIC nanoseconds and its distance from CLOCK_REALTIME."""


def monotonic_ns() -> int:
    """CLOCK_MONOTONIC now, in ns: the clock of every time in a run."""
    return mono_ns()


def realtime_offset_ns() -> int:
    """CLOCK_REALTIME minus CLOCK_MONOTONIC in ns, exact to half the time that two clock reads take."""
    return real_minus_mono()
