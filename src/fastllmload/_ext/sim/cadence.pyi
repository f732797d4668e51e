class Cadence:
    late_max_ns: int

class Spread(Cadence):
    def __init__(self, seed: int, ttft_ns: int, itl_ns: int) -> None: ...

class Lockstep(Cadence):
    def __init__(self, ttft_ns: int, itl_ns: int) -> None: ...

class Flood(Cadence):
    def __init__(self, burst: int) -> None: ...
