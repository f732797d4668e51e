"""Rows and figures of a run for other programs: files in their formats, and what is sent to them."""
