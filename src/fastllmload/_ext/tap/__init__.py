"""Segments of the packet ring, and their times onto rows."""
