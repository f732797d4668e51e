"""Options as one table, the parsers of their values, and the rules between them."""
