"""asiai's short benchmark: one request at a time."""
