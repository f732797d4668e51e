"""Preparation steps (hooks, restarts, warm-up) that are done only when a level is really measured.

A procedure that is started again takes its finished levels from its folder, so their steps are not repeated. The steps
that the next measured level needs are done in their order. A step belongs to a group ("cache", "guardrail", "warmup");
the last step requested in a group is the group's wanted state. Doing a step undoes the steps requested after it: the
warm-up is repeated after a restart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Action = Callable[[], object]


@dataclass(frozen=True)
class PreparationStep:
    """*name*: the state that *action* brings about."""

    group: str
    name: str
    action: Action


class PreparationSteps:
    """Requested steps and done steps."""

    def __init__(self) -> None:
        self._wanted: dict[str, PreparationStep] = {}
        self._done: dict[str, PreparationStep] = {}

    @property
    def state(self) -> tuple[str, ...]:
        """The wanted states as `group=name`, in order."""
        return tuple(f"{step.group}={step.name}" for step in self._wanted.values())

    def want(self, step: PreparationStep) -> None:
        """Request *step*. If the group already has a step of that name, nothing changes."""
        before = self._wanted.get(step.group)
        if before is not None and before.name == step.name:
            return
        self._wanted[step.group] = step  # at the group's position: the order of groups does not change

    def renew(self, group: str) -> None:
        """Forget that the step of *group* was done, so that it is done again."""
        self._done.pop(group, None)

    def drop(self, group: str) -> None:
        """Remove the group: its state does not matter any more."""
        self._wanted.pop(group, None)
        self._done.pop(group, None)

    def do(self) -> None:
        """Do all requested steps that are not done, and every step after the first of them."""
        stale = False
        for group, step in list(self._wanted.items()):
            if stale or self._done.get(group) is not step:
                stale = True
                self._done.pop(group, None)
                step.action()
                self._done[group] = step
