class Blocks:
    total: int
    block_size: int
    sharing: bool
    anonymous: int
    shared: int
    idle: int
    evictions: int
    def __init__(self, total: int, block_size: int, sharing: bool) -> None: ...
