from fastllmload._ext.sim.blocks import Blocks
from fastllmload._ext.sim.cadence import Cadence

class Batching(Cadence):
    blocks: Blocks
    steps: int
    preemptions: int
    prefix_queries: int
    prefix_hits: int
    drafts: int
    def __init__(self, profile: object, seed: int) -> None: ...
    def counters(self) -> dict[str, float]: ...
    def drop_cached(self) -> int: ...
