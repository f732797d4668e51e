"""A small endpoint and settings, so that plans can be built without any wire protocol."""

from dataclasses import dataclass

import msgspec

from fastllmload.plan.build import build_plan
from fastllmload.settings import Load, RunSettings


@dataclass(frozen=True)
class Pieces:
    before: bytes = b'{"prompt":'
    middle: tuple[bytes, ...] = (b',"max_tokens":', b',"min_tokens":')
    tail: bytes = b',"stream":true}'


class TwoNumbers:
    """An endpoint whose bodies state the output length twice."""

    call = None
    tokens = True

    def form(self, workload):
        return "ids" if workload.prompt_form == "ids" else "text"

    def body_pieces(self, model, workload):
        return Pieces(before=b'{"model":"%s","prompt":' % model.encode())


def asked(rate=20.0, duration=10.0, **changes):
    """RunSettings with *changes* like load__num_requests=5 or workload__isl="9"."""
    settings = RunSettings(load=Load(rate=rate, duration=duration))
    for name, value in changes.items():
        group, field = name.split("__")
        part = msgspec.structs.replace(getattr(settings, group), **{field: value})
        settings = msgspec.structs.replace(settings, **{group: part})
    return settings


def build(directory, settings=None, phase="measure", model="m"):
    settings = asked() if settings is None else settings
    return build_plan(settings, phase=phase, endpoint=TwoNumbers(), model=model, out_dir=directory)
