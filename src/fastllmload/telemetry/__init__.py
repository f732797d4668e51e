"""Telemetry of a run: server metrics, power, GPUs and the host, sampled on the run's own clock into its folder."""
