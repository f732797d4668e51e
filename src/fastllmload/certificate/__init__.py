"""The certificate on the load generator itself: evidence of a run, thresholds, causes, verdict."""
