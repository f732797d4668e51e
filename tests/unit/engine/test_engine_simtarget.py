"""--simulate NAME=VALUE sets any option of the simulated engine, checked."""

import pytest

from fastllmload.engine.simtarget import options_of
from fastllmload.errors import InputError


def test_options_are_read_by_their_names_and_kinds():
    found = options_of(
        [
            ("ttft-ms", "5"),
            ("null", "true"),
            ("seed", "7"),
            ("fault", "reset:0.1"),
            ("fault", "stall:0.2"),
            ("set.step_ms", "9"),
        ]
    )
    assert (found.ttft_ms, found.null, found.seed) == (5.0, True, 7)
    assert (found.faults, found.overrides) == (("reset:0.1", "stall:0.2"), (("step_ms", "9"),))


@pytest.mark.parametrize(
    "pair",
    [("nope", "1"), ("port", "80"), ("die_with_parent", "1"), ("overrides", "1"), ("ttft_ms", "soon"), ("seed", "1.5")],
)
def test_what_is_no_option_is_refused(pair):
    with pytest.raises(InputError, match="--simulate"):
        options_of([pair])
