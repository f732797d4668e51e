"""What must be done to the system before a level is measured: hooks, restarts, warm-up. Done when a level really runs.

A procedure that is started again finds its finished levels in its folder, so what prepared them is not done again;
what the next level needs is, in its order. A step belongs to a group ("cache", "guardrail", "warmup"): the last one
asked for in a group is the state that the group shall have. Doing a step undoes those that were asked for after it:
behind a restart the warm-up is done anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Action = Callable[[], object]


@dataclass(frozen=True)
class PreparationStep:
    """*name* says the state that *action* brings about."""

    group: str
    name: str
    action: Action


class PreparationSteps:
    """Steps asked for and steps done."""

    def __init__(self) -> None:
        self._wanted: dict[str, PreparationStep] = {}
        self._done: dict[str, PreparationStep] = {}

    @property
    def state(self) -> tuple[str, ...]:
        """What the system is asked to be, as `group=name`, in order."""
        return tuple(f"{step.group}={step.name}" for step in self._wanted.values())

    def want(self, step: PreparationStep) -> None:
        """Asked for again under the same name, a step is the same step: it stays where it is."""
        before = self._wanted.get(step.group)
        if before is not None and before.name == step.name:
            return
        self._wanted[step.group] = step  # in the group's place: what was asked for behind it stays behind it

    def renew(self, group: str) -> None:
        """Forget that the step of *group* was done, so that it is done anew."""
        self._done.pop(group, None)

    def drop(self, group: str) -> None:
        """The group has no state that matters any more."""
        self._wanted.pop(group, None)
        self._done.pop(group, None)

    def do(self) -> None:
        """Bring about everything that is asked for and not yet so."""
        stale = False
        for group, step in list(self._wanted.items()):
            if stale or self._done.get(group) is not step:
                stale = True
                self._done.pop(group, None)
                step.action()
                self._done[group] = step
