"""The verdict by the draft in run.json."""

from __future__ import annotations

from fastllmload.documents.fields import Document, Plain, Sentence, Sentences


class Requirements(Document, frozen=True, kw_only=True):
    """How many requirements of a level hold, and the ids of those that do not."""

    hold: Plain = None  # that hold, of those that apply
    of: Plain = None  # that apply
    false: tuple[str, ...] = ()  # ids of those that do not hold
    undeclared: tuple[str, ...] = ()  # ids of those that need a declaration
    unchecked: tuple[str, ...] = ()  # ids of those that could not be checked


class Requirement(Document, frozen=True, kw_only=True):
    """A requirement that does not hold."""

    id: str = ""  # as `fastllmload compliance` lists it
    level: str | None = None  # key word of the draft: MUST, SHOULD ...; DEFINITION: none
    basis: str | None = None  # why it has that level: keyword, governed, imperative ...
    state: str | None = None  # false, undeclared, unchecked
    statement: str | None = None  # what is required
    reason: Sentence = None  # why it does not hold
    remedy: str | None = None  # what to do


class Compliance(Document, frozen=True, kw_only=True):
    """The verdict by the draft; `fastllmload compliance RUN` has all of it."""

    verdict: str | None = None  # unconditionally, conditionally or not compliant (IETF 2)
    test: str | None = None  # name of the test; None: a run
    scope: str | None = None  # what was judged, as a phrase
    counts: dict[str, Plain] = {}  # requirements by what became of them
    must: Requirements = Requirements()  # requirements of the level MUST
    should: Requirements = Requirements()  # requirements of the level SHOULD
    deviations: Sentences = ()  # from the draft's method
    unmet: tuple[Requirement, ...] = ()  # those that decide the verdict and do not hold
    beside: tuple[Requirement, ...] = ()  # without a key word of the draft: they decide nothing; prose: allow

    def optional(self) -> tuple[str, ...]:
        """Of what is judged with something else, such as a level with its procedure: all but verdict and scope."""
        return (
            () if self.verdict else tuple(name for name in self.__struct_fields__ if name not in ("verdict", "scope"))
        )
