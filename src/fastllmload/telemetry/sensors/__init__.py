"""Sources of telemetry: the server's metrics page, GPUs, power, this host, a command."""
