"""What is recorded while a run goes on: rows, packet times, telemetry, counters, the run folder."""
