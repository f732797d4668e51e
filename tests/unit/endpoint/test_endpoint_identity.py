"""Templates of session identity: what is parsed, compiled and rendered, and what a router makes of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hpack import Decoder
from hypothesis import given
from hypothesis import strategies as st

from fastllmload._ext.send import identity as compiled_identity
from fastllmload._ext.send.identity import Identity
from fastllmload.endpoint.identity import AFFINITIES, FIELDS, PARTS, compiled, lines, named_sessions, pieces, resolved
from fastllmload.settings import SessionIdentity

PREFIX = b"00ff-3-"
WHO = {"request": 41, "session": 17, "chain": 0, "parent": -1, "turn": 2, "of_class": 0, "user": -1, "last": 0}


def rendered(
    identity: SessionIdentity, token: bytes = b"", classes: tuple[str, ...] = (), **who: int
) -> dict[str, Any]:
    """Headers and fields of the body, with the same headers over HTTP/2."""
    made = Identity(**compiled(resolved(identity), classes))
    text, block, opening = made.rendered(WHO | who, PREFIX, token)
    headers = dict(line.split(": ", 1) for line in text.decode("latin-1").split("\r\n") if line)
    decoded = [(name, value.decode("latin-1")) for name, value in Decoder().decode(block, raw=True)]
    assert decoded == [(name.lower().encode(), value) for name, value in headers.items()]
    body = json.loads(opening + b'"model":"m"}') if opening else {}
    body.pop("model", None)
    return headers | body


def by_hand(template: str, values: dict[str, str]) -> str:
    return template.format(**values)


def test_parts_have_the_compiled_numbers() -> None:
    assert compiled_identity.PARTS == PARTS


LITERAL = st.text(st.characters(codec="latin-1", exclude_characters="{}", exclude_categories=("Cc",)), max_size=9).map(
    str.strip
)
PART = st.one_of(LITERAL, st.sampled_from([f"{{{name}}}" for name in FIELDS]), st.sampled_from(["{{", "}}", '"', "\\"]))
TEMPLATE = st.lists(PART, max_size=9).map("".join)
NUMBER = st.integers(0, 2**32 - 1)


@given(
    st.lists(TEMPLATE, min_size=1, max_size=4), NUMBER, NUMBER, st.integers(0, 9), st.integers(-1, 9), NUMBER,
    st.integers(0, 2), st.integers(-1, 99), st.booleans(), st.booleans(),
)  # fmt: skip
def test_what_is_rendered_is_what_python_formats(
    templates: list[str], request: int, session: int, chain: int, parent: int, turn: int, number: int, user: int,
    last: bool, own: bool,
) -> None:  # fmt: skip
    """In headers of both versions and in JSON, whatever text is around the fields; what is missing leaves out all of it."""
    classes = ("chat", 'bat"ch', "é\\")
    start, main = PREFIX.decode(), f"{PREFIX.decode()}s{session}"
    chained = {at: f"{main}-{at}" if own and at > 0 else main for at in (chain, parent)}
    values = {
        "session": chained[chain], "parent": chained[parent], "root": main, "turn": str(turn), "class": classes[number],
        "user": f"{start}u{session if user < 0 else user}", "final": "true", "request": f"{start}{request}",
    }  # fmt: skip
    identity = SessionIdentity(
        headers=tuple((f"X-{at}", each) for at, each in enumerate(templates)),
        body=tuple((f"f{at}", each) for at, each in enumerate(templates)),
        children="own" if own else "parent",
    )
    found = rendered(
        identity, classes=classes, request=request, session=session, chain=chain, parent=parent, turn=turn,
        of_class=number, user=user, last=last,
    )  # fmt: skip
    expected = {}
    for at, each in enumerate(templates):
        has = {part for part, _ in pieces(each)}
        if ("parent" in has and (parent < 0 or not own)) or ("final" in has and not last):
            continue
        expected[f"X-{at}"] = expected[f"f{at}"] = by_hand(each, values)
    assert found == expected


@pytest.mark.parametrize("template", ["{", "}", "a{b", "{sessions}", "{}", "{ session}", "{token}", "{session"])
def test_templates_that_cannot_be_filled(template: str) -> None:
    with pytest.raises(ValueError, match="field of sessions|single brace"):
        pieces(template)


def test_objects_hold_all_fields_of_their_path() -> None:
    body = (
        ("metadata.session_id", "{session}"),
        ("user", "{user}"),
        ("metadata.who.turn", "{turn}"),
        ("metadata.é", "{{"),
    )
    assert rendered(SessionIdentity(body=body)) == {
        "metadata": {"session_id": "00ff-3-s17", "who": {"turn": "2"}, "é": "{"},
        "user": "00ff-3-u17",
    }


@pytest.mark.parametrize(
    ("affinity", "who", "said"),
    [
        ("vllm", {}, {"X-Session-ID": "00ff-3-s17"}),
        ("vllm-sticky", {}, {"X-Session-ID": "00ff-3-s17"}),
        ("smg", {"chain": 2, "parent": 0}, {"X-SMG-Routing-Key": "00ff-3-s17-2"}),
        ("dynamo", {}, {"X-Dynamo-Session-ID": "00ff-3-s17"}),
        (
            "dynamo",
            {"chain": 3, "parent": 2, "last": 1},
            {
                "X-Dynamo-Session-ID": "00ff-3-s17-3",
                "X-Dynamo-Parent-Session-ID": "00ff-3-s17-2",
                "X-Dynamo-Session-Final": "true",
            },
        ),
        ("llm-d", {}, {}),
        ("aibrix", {}, {"routing-strategy": "session-affinity"}),
        ("litellm", {}, {"x-litellm-session-id": "00ff-3-s17"}),
        ("openai", {}, {"prompt_cache_key": "00ff-3-s17"}),
        ("generic", {}, {"X-Session-ID": "00ff-3-s17", "X-Session-Affinity": "00ff-3-s17"}),
        ("none", {}, {}),
    ],
)
def test_what_routers_get(affinity: str, who: dict[str, int], said: dict[str, str]) -> None:
    assert rendered(SessionIdentity(affinity=affinity), **who) == said


@pytest.mark.parametrize(("affinity", "name"), [("llm-d", "x-session-token"), ("aibrix", "x-session-id")])
@pytest.mark.parametrize("token", [b"", b"t", b"x" * 126, b"y" * 127, b"z" * 400])
def test_a_token_is_sent_as_it_came(affinity: str, name: str, token: bytes) -> None:
    """Of any size, where there is one."""
    found = rendered(SessionIdentity(affinity=affinity), token)
    assert found.get(name) == (token.decode() or None)


@pytest.mark.parametrize(
    ("option", "token", "said"),
    [
        ("body:id=X-Id", b"r1", {"X-Id": "r1"}),
        ("X-Id=body:a.b.c", b'"r1"', {"a": {"b": {"c": "r1"}}}),
        ("body:id", b"17", {"id": 17}),
        ("body:id", b"", {}),
    ],
)
def test_a_token_in_bodies(option: str, token: bytes, said: dict[str, object]) -> None:
    """As a value of JSON; of what came the worker makes what is sent (tests/ext/send/test_ext_identity.py)."""
    assert rendered(SessionIdentity(token=option), token) == said


def test_plans_say_where_tokens_are() -> None:
    (line,) = lines(SessionIdentity(token="body:conversation.id=x-c"))
    assert line == "header x-c: the token that answers have in body field conversation.id"


def test_given_options_add_to_those_of_a_router() -> None:
    """And replace what has the same name, in any case of letters."""
    given = SessionIdentity(
        affinity="vllm-sticky", headers=(("x-session-id", "{root}"), ("X-T", "{turn}")), token="a=b", end="DELETE /s"
    )
    found = resolved(given)
    assert found.headers == given.headers and (found.token, found.end) == ("a=b", "DELETE /s")
    assert len(lines(given)) == 4
    assert named_sessions(SessionIdentity(affinity="none")) is named_sessions(SessionIdentity()) is None


@pytest.mark.parametrize("name", AFFINITIES)
def test_every_affinity_is_listed_in_plans(name: str) -> None:
    chosen = AFFINITIES[name]
    many = len(chosen.headers) + len(chosen.body) + (chosen.token is not None) + (chosen.end is not None)
    assert len(lines(SessionIdentity(affinity=name))) == many
