"""Removes what must not be public from documents: names, capacity limits, loads."""
