"""Nothing for Python: see the .pxd."""
