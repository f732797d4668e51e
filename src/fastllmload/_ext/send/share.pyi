class Share:
    """A worker's share of a plan; the Releases make and use it."""

    def __init__(self, run_id: bytes, worker: int, workers: int) -> None: ...
