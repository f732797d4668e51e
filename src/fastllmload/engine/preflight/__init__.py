"""Checks of the target before the clock starts: addresses, TLS, models, one probe request."""
