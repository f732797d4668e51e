"""One run from preflight to report: the supervisor and its processes."""
