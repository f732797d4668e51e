from collections.abc import Callable

from fastllmload._ext.sim.fault import Faults

class Intake:
    prompt_tokens: int
    refusal: tuple[int, str, str] | None
    def __init__(
        self,
        settings: object,
        faults: Faults,
        apis: list[tuple[object, Callable[[bytes], object]]],
        forms: list[object],
    ) -> None: ...
