"""Recording during a run: rows, packet times, telemetry, counters, the run folder."""
