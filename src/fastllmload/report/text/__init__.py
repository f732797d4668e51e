"""Numbers, tables and sentences shared by several reports."""
