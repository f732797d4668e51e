"""The options of a run as one table, the parsers of their values, and the rules for combining them."""
