"""`--quick` makes every test shorter, and nothing of what the tester asked for longer or larger."""

from __future__ import annotations

import msgspec
import pytest

from fastllmload.procedure import tests as module


@pytest.mark.parametrize("name", module.NAMES)
@pytest.mark.parametrize("small", [False, True])
def test_no_number_grows(name: str, small: bool) -> None:
    parameters = module.test_named(name).parameters()
    if small:
        sizes = {"duration_s": 1.5, "request_count": 7, "requests": 3, "output_tokens": 2, "slots": 1, "per_slot": 1}
        known = parameters.__struct_fields__
        parameters = msgspec.structs.replace(parameters, **{key: size for key, size in sizes.items() if key in known})
    quick = parameters.quick()
    for field in parameters.__struct_fields__:
        asked, found = getattr(parameters, field), getattr(quick, field)
        if isinstance(asked, (int, float)) and field != "per_slot":
            assert found <= asked, field
    assert small or quick != parameters


@pytest.mark.parametrize(("name", "field"), [("guardrail", "levels"), ("itl", "levels"), ("long-context", "lengths")])
def test_a_list_given_by_the_user_is_not_shortened(name: str, field: str) -> None:
    kind = module.test_named(name).parameters
    own = tuple(range(1, 7))
    assert getattr(kind(**{field: own}).quick(), field) == own
    assert len(getattr(kind().quick(), field)) < len(getattr(kind(), field))
