"""Rows of a run for other programs: JSON lines, CSV, Parquet."""
