class Framing:
    """How responses lie on a connection; the Protocol uses one."""
