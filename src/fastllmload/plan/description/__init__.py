"""A plan described for a person: numbers, text, bars."""
