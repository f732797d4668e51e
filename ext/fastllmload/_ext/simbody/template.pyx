"""Templates as they are declared (`endpoint/simulated.py` has their language), read into the steps of a program."""

import re
from collections.abc import Mapping

import msgspec

_SLOT = re.compile(r"\$([a-z_]+)")
_PART = re.compile(r"(\$<[^:]+:|\$>|\$[a-z_]+|\n)")
_SAYS = {
    "counted": SAYS_COUNTED, "ids": SAYS_IDS, "logprobs": SAYS_LOGPROBS, "usage": SAYS_USAGE, "thought": SAYS_THOUGHT,
    "silent": SAYS_SILENT,
}
_NUMBERS = {
    "prompt": NUMBER_PROMPT, "completion": NUMBER_COMPLETION, "cached": NUMBER_CACHED, "total_ns": NUMBER_TOTAL_NS,
    "load_ns": NUMBER_LOAD_NS, "prompt_eval_ns": NUMBER_PROMPT_EVAL_NS, "eval_ns": NUMBER_EVAL_NS,
    "sequence": NUMBER_SEQUENCE, "index": NUMBER_INDEX, "call": NUMBER_CALL, "reasoning": NUMBER_REASONING,
}
_SLOTS = _NUMBERS | {
    "total": SLOT_TOTAL, "uncached": SLOT_UNCACHED, "text": SLOT_TEXT, "whole_text": SLOT_WHOLE_TEXT, "ids": SLOT_IDS,
    "whole_ids": SLOT_WHOLE_IDS, "logprobs": SLOT_LOGPROBS, "\n": SLOT_LINE_END, "call_hex": SLOT_CALL_HEX,
    "thought": SLOT_THOUGHT, "whole_call": SLOT_WHOLE_CALL, "calls": SLOT_CALLS, "tokens": SLOT_TOKENS,
    "request_id": SLOT_REQUEST_ID,
}
_SLOTS |= {f"raw_{name}": SLOT_RAW + _SLOTS[name] for name in ("text", "whole_text", "prompt", "completion", "tokens")}
# Written over in a piece: as many bytes each time.
_PATCHES = {"id": b"0" * 16, "created": b"0" * 10, "time": b"0000-00-00T00:00:00.000000000Z"}


def slots() -> dict[str, int]:
    """Numbers of the slots, by their names."""
    return _SLOTS


def filled(template: str, values: Mapping[str, object]) -> bytes:
    """*template* with each `$name` replaced. A text is the inside of a JSON string."""
    texts = {name: inside(value).decode() if isinstance(value, str) else str(value) for name, value in values.items()}
    return _SLOT.sub(lambda slot: texts.get(slot[1], slot[0]), template).encode()


cdef bytes inside(str text):
    # The bytes of a JSON string between its quotes.
    return msgspec.json.encode(text)[1:-1]


cdef list listed(object events, str before):
    """The texts of a group of events, framed by *before* and the line of a name; without *before*, by nothing."""
    group = events if isinstance(events, tuple) else (events,) if events else ()
    return [before + text_of(each) if isinstance(each, str) or not before else f"event: {each.name}\n{before}{each.text}" for each in group]


cdef object ended(object events, str word):
    """*events* with the word for why a reply ended."""
    if isinstance(events, tuple):
        return tuple(ended(each, word) for each in events)
    return events.replace("$finish", word) if isinstance(events, str) else type(events)(events.name, ended(events.text, word))


cdef str text_of(object events):
    group = events if isinstance(events, tuple) else (events,)
    return "".join(each if isinstance(each, str) else each.text for each in group)


cdef int conditions(str text):
    cdef int says = 0
    for part in _PART.findall(text):
        says |= SAYS_IDS | SAYS_LOGPROBS if part == "$padding" else 0
        for name in part[2:-1].split() if part.startswith("$<") else ():
            says |= _SAYS.get(name.lstrip("!"), 0)
    return says


cdef list parsed(str text, int says, dict fixed):
    """Steps: (piece, places of id, created and time in it, slot after it, whether it is optional). ValueError: what is wrong."""
    steps = [new_step()]
    left_out = False
    for part in _PART.split(text):
        step, name = steps[-1], part.removeprefix("$")
        if part == "$>":
            if step[3] and not left_out:
                raise ValueError(f"the template {text!r} has an optional part that does not end with its number")
            if step[3]:
                steps[-1] = new_step()
            left_out = False
        elif part.startswith("$<"):
            for condition in part[2:-1].split():
                if condition in _NUMBERS:
                    steps.append(new_step(True))
                elif condition.lstrip("!") in _SAYS:
                    left_out |= bool(says & _SAYS[condition.lstrip("!")]) == condition.startswith("!")
                else:
                    raise ValueError(f"the template {text!r} has an unknown condition {condition}")
        elif left_out or name == "padding" and says & (SAYS_IDS | SAYS_LOGPROBS):
            continue                                            # what lists its tokens is not padded
        elif name in _SLOTS:
            step[2] = _SLOTS[name]
            steps.append(new_step())
        elif not part.startswith("$"):
            step[0] += part.encode()
        elif name in fixed:
            step[0] += fixed[name]
        elif name in _PATCHES:
            if name in step[1]:
                steps.append(new_step())
            steps[-1][1][name] = len(steps[-1][0])
            steps[-1][0] += _PATCHES[name]
        else:
            raise ValueError(f"the template {text!r} has an unknown slot {part}")
    kept = [step for step in steps if step[0] or step[2] != SLOT_NONE] or [new_step()]
    return [(piece, [patches.get(name, NOWHERE) for name in _PATCHES], slot, optional) for piece, patches, slot, optional in kept]


cdef list new_step(bint optional=False):
    return [b"", {}, SLOT_NONE, optional]
