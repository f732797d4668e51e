"""Renderers of blocks: each knows a format, none knows a run."""
