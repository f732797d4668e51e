"""What the simulated engine is: `SimulatorOptions` (how it serves) and `Profile` (how its engine behaves).

Times are milliseconds or microseconds as their names say, lengths tokens. This module imports neither numpy nor
anything compiled, so that `--help` stays instant.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from fastllmload import quantities
from fastllmload.errors import InputError
from fastllmload.files import parse_toml, read_text

PROFILES = Path(__file__).parent / "profiles"


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One engine. *cadence* "batching" is the engine model; "spread" and "lockstep" have constant TTFT and ITL.

    A step of the batching engine takes
    step_ms + per_sequence_us * sequences + per_prefill_token_us * prefill tokens + per_kilo_context_us * context /
    1000.
    """

    description: str = ""
    cadence: str = "batching"
    # Constant cadences
    ttft_ms: float = 20.0
    itl_ms: float = 20.0
    # Batching engine
    step_ms: float = 20.0
    per_sequence_us: float = 0.0
    per_prefill_token_us: float = 0.0
    per_kilo_context_us: float = 0.0
    prefill_exponent: float = 1.0  # of the prompt's length, in the duration of its prefill
    pause_every: int = 0  # one of that many steps takes pause_ms longer (another engine's turn, a collection)
    pause_ms: float = 0.0
    jitter: float = 0.0  # share of a step's time that is drawn, uniform, plus or minus
    max_running: int = 256
    step_tokens: int = 8192  # tokens that one step computes at most (chunked prefill)
    kv_blocks: int = 16384
    block_size: int = 16
    prefix_cache: bool = True
    draft_tokens: int = 0  # that a step verifies for each sequence after its first token (speculative decoding)
    acceptance: float = 0.0  # probability that one is accepted, if those before it were
    scheduler: str = "fcfs"  # priority: lowest `priority` of body or X-Priority first; shortest: shortest prompt
    ttft_floor_ms: float = 0.0  # before a request may enter the waiting queue
    guard_in_ms: float = 0.0  # input guardrail: further delay before the queue
    guard_out_ms: float = 0.0  # output guardrail: each token leaves so much later
    # Lengths
    max_model_len: int = 131072
    default_max_tokens: int = 256  # for requests that do not say
    eos_mean_tokens: float = 0.0  # mean of the drawn length of requests without ignore_eos; 0 = always max_tokens

    def __post_init__(self) -> None:
        for name in ("max_running", "step_tokens", "kv_blocks", "block_size", "max_model_len", "default_max_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        for name in ("step_ms", "ttft_ms", "itl_ms", "guard_in_ms", "guard_out_ms", "ttft_floor_ms", "eos_mean_tokens",
                     "pause_ms", "pause_every"):  # fmt: skip
            if not 0 <= getattr(self, name) <= 3_600_000:
                raise ValueError(f"{name}={getattr(self, name)} must lie from 0 to 3600000")
        if not 0 <= self.draft_tokens <= 16 or not 0 <= self.acceptance <= 1:
            raise ValueError(
                f"draft_tokens={self.draft_tokens} must lie from 0 to 16, acceptance={self.acceptance} from 0 to 1"
            )
        if not 0 <= self.jitter < 1:
            raise ValueError(f"jitter={self.jitter} must lie from 0 to below 1")
        if self.cadence not in ("batching", "spread", "lockstep", "flood"):
            raise ValueError(f"cadence={self.cadence!r} must be batching, spread, lockstep or flood")
        if not 0.5 <= self.prefill_exponent <= 3:
            raise ValueError(f"prefill_exponent={self.prefill_exponent} must lie from 0.5 to 3")
        if self.scheduler not in ("fcfs", "priority", "shortest"):
            raise ValueError(f"scheduler={self.scheduler!r} must be fcfs, priority or shortest")
        if self.cadence == "batching" and self.kv_blocks * self.block_size < self.max_model_len:
            raise ValueError(
                f"kv_blocks x block_size = {self.kv_blocks * self.block_size} tokens hold no request of"
                f" max_model_len={self.max_model_len}"
            )


class SimulatorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to serve. *port* 0 takes a free one; *truth* is the path of the truth log (see `truth.load`)."""

    host: str = "127.0.0.1"
    port: int = 0
    unix_socket: str | None = None
    processes: int = 1  # processes that share the port (SO_REUSEPORT); each has an engine of its own
    profile: str = "default"  # name of a bundled profile, or path of a TOML file
    overrides: tuple[tuple[str, str], ...] = ()  # fields of the profile, as texts
    ttft_ms: float | None = None  # with itl_ms or phase: a constant cadence in place of the profile's
    itl_ms: float | None = None
    phase: str | None = None  # spread or lockstep
    null: bool = False  # answer as fast as possible
    model: str = "simulated"
    more_models: tuple[str, ...] = ()  # that are served too
    any_model: bool = False
    api_key: str | None = None
    tls: bool = False  # with a certificate that signs itself, unless there is one
    tls_cert: str | None = None  # PEM, with its chain
    tls_key: str | None = None  # PEM; None: in the file of the certificate
    tls_client_ca: str | None = None  # PEM; clients must show a certificate of one of these
    tls_alpn: str = "h2,http/1.1"  # names in order of preference, with commas; "": ALPN is not answered
    http2_streams: int = 128  # of a connection at once
    http2_window: int = 1 << 20  # bytes of a request's body that may come before more is allowed; 0: none is
    coalesce: int = 1  # events per write
    chunk_bytes: int = 250  # content events are padded to about this size
    early_head: bool = False  # the response head leaves before the first token
    truth: str | None = None
    logged: tuple[str, ...] = ()  # headers, and fields of bodies (body:FIELD), that the truth log shows
    session_token: str | None = None  # header that answers with the token of a session
    backends: int = (
        0  # names, of which each answer has one, as a router's answers do; 0: none. Each process has its own
    )
    backend_header: str = "x-backend"  # that has the name
    routed_by: tuple[str, ...] = ()  # headers and body:FIELD: a hash of the first that a request has chooses the name
    control: str = "all"  # whose control routes there are: all, vllm, sglang, dynamo, none
    faults: tuple[str, ...] = ()  # NAME:SHARE[:ARG]
    seed: int = 42
    cpu: int | None = None
    die_with_parent: int | None = None  # process id of the parent whose end ends the simulator

    @property
    def secured(self) -> bool:
        return self.tls or self.tls_cert is not None


REPEATED = {
    "fault": "faults",
    "log": "logged",
    "route_by": "routed_by",
}  # options that may be given again: their fields
UNITS = {"ms": "ms", "us": "us"}  # ending of a field's name: unit of its plain numbers
SHARES = ("jitter", "acceptance")


def numbered(fields: Mapping[str, object], struct: type[msgspec.Struct]) -> dict[str, object]:
    """*fields* with the texts of quantities (`5ms`, `1k`, `10%`) as numbers; other values are left to the conversion."""
    hints = struct.__annotations__
    return {name: _numbered(name, value, str(hints.get(name))) for name, value in fields.items()}


def _numbered(name: str, value: object, hint: str) -> object:
    if not isinstance(value, str) or not hint.startswith(("int", "float")):
        return value
    unit = UNITS.get(name.rpartition("_")[2])
    if unit is not None:
        found = quantities.duration(value, unit)
    elif name in ("chunk_bytes", "http2_window"):
        found = quantities.size(value, plain=True)
    else:
        found = quantities.share(value) if name in SHARES else quantities.number(value)
    if found is None:
        return value
    return int(found) if hint.startswith("int") and found == int(found) else found


def profile_names() -> list[str]:
    return sorted(path.stem for path in PROFILES.glob("*.toml"))


def _read(name: str) -> dict[str, object]:
    path = Path(name) if name.endswith(".toml") else PROFILES / f"{name}.toml"
    try:
        return parse_toml(read_text(path))
    except FileNotFoundError:
        known = ", ".join(profile_names())
        raise InputError(
            "profile-unknown", f"profile {name!r} does not exist; give a .toml file or one of {known}"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError("file-unreadable", f"profile {name!r} cannot be read: {error}") from None


def load_profile(name: str, overrides: tuple[tuple[str, str], ...] = ()) -> Profile:
    """The bundled profile or TOML file *name* with some fields replaced; InputError names what is wrong."""
    fields: dict[str, object] = _read(name)
    fields.update(overrides)
    for field in fields:
        if field not in Profile.__struct_fields__:
            near = difflib.get_close_matches(field, Profile.__struct_fields__, 1)
            known = f"did you mean {near[0]}?" if near else f"it has {', '.join(Profile.__struct_fields__)}"
            raise InputError("simulator-option-unknown", f"profile {name!r} has no field {field!r}; {known}")
    try:
        return msgspec.convert(numbered(fields, Profile), Profile, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise InputError("simulator-option-invalid", f"profile {name!r}: {error}") from None


def resolve(options: SimulatorOptions) -> Profile:
    """The profile that *options* ask for: --null, a constant cadence, or the named one."""
    profile = load_profile(options.profile, options.overrides)
    if options.null:
        return msgspec.structs.replace(profile, cadence="flood", prefix_cache=False)
    constant = {"ttft_ms": options.ttft_ms, "itl_ms": options.itl_ms, "cadence": options.phase}
    given = {name: value for name, value in constant.items() if value is not None}
    if not given:
        return profile
    if "cadence" not in given:
        given["cadence"] = profile.cadence if profile.cadence in ("spread", "lockstep") else "spread"
    try:
        return msgspec.structs.replace(profile, prefix_cache=False, **given)
    except ValueError as error:
        raise InputError("simulator-option-invalid", str(error)) from None
