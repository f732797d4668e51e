"""Traces of agentic sessions, one file per format; `formats` lists them."""
