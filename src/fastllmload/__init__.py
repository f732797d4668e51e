"""Load generator and measuring instrument for LLM serving that certifies itself in every report."""

__version__ = "0.1.0"
