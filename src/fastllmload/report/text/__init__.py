"""Numbers, tables and sentences that several reports share."""
