def text_frame(payload: bytes) -> bytes:
    """A client's message, as a run sends it."""
