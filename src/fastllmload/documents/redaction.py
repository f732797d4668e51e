"""Redacts a document for publication (IETF 7.1), field by field, by what each field's type declares it to reveal.

Nothing is searched in texts: a text that could quote a load or a name is withheld as a whole, and a text that is either a
name or a path if it is a path. A field that the types do not declare is left out. A withheld value is `withheld`, in
contrast to `n/a`: it was measured. Latencies are kept, and so is the throughput at a declared rate.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, get_args, get_origin

import msgspec

from fastllmload.documents.certificate import Certificate
from fastllmload.documents.experiment import FindingValues
from fastllmload.documents.fields import WITHHELD, Reveals
from fastllmload.documents.metric import THROUGHPUTS, Metric, reveals
from fastllmload.documents.procedure import FINDINGS, ProcedureDocument
from fastllmload.documents.read import convert, fields, members
from fastllmload.documents.run import RunDocument
from fastllmload.documents.run_parts.hosts import HostEntry
from fastllmload.documents.run_parts.telemetry import ServerFigure, TelemetryEntry
from fastllmload.settings import Hosts, Load, Output, ServerControl, Target, Telemetry, TrafficClass, Workload

HIDDEN = WITHHELD.value
ALWAYS = frozenset((Reveals.NAME, Reveals.ENGINE))
WITH_LOAD = ALWAYS | {Reveals.LOAD, Reveals.SHARE, Reveals.SENTENCE, Reveals.CURVE}
OF_NAMES = "names of hosts, URLs, paths and processes, memory figures of the server, settings of a simulated engine"
OF_LOAD = f"the load, throughput and every count of requests or tokens, which reveal the capacity; {OF_NAMES}"
CAPACITY_TESTS = ("throughput", "tradeoff", "capacity", "memory-pressure")
OF_LIMITS = f"results and levels, which are the capacity; {OF_LOAD}"
OTHERS = "remarks that may quote a load are withheld (IETF 7.1)"
SHOWN = frozenset((Reveals.NOTHING, Reveals.SHARE))
# Settings have no annotations of their own: the command line must start without these types.
SETTINGS: dict[type, dict[str, Reveals]] = {
    Target: {
        **dict.fromkeys(("urls", "unix_socket", "endpoint_path", "headers", "source_addresses"), Reveals.NAME),
        **dict.fromkeys(("cacert", "client_cert", "client_key", "server_name"), Reveals.NAME),
        "simulate": Reveals.ENGINE, "backend_header": Reveals.NAME, "model": Reveals.MODEL, "models": Reveals.NAME,
    },
    Load: {
        **dict.fromkeys(("rate", "concurrency", "max_concurrency", "max_prefill", "num_requests"), Reveals.LOAD),
        **dict.fromkeys(("rate_curve", "concurrency_curve"), Reveals.CURVE),
    },
    Workload: {
        **dict.fromkeys(("extra_body", "dataset_path", "prompt", "hf_split", "hf_subset", "dataset_columns"), Reveals.NAME),
        "stream": Reveals.LOAD, "tokenizer": Reveals.FILE,
    },
    Output: dict.fromkeys(("directory", "metadata", "declare", "save_plan", "plan", "plan_urls"), Reveals.NAME),
    Telemetry: dict.fromkeys(("urls", "matchers", "power_command", "metrics", "prometheus"), Reveals.NAME),
    Hosts: dict.fromkeys(("address", "resource"), Reveals.NAME),
    ServerControl: dict.fromkeys(("between", "replicas", "admin_key_file"), Reveals.NAME),
    TrafficClass: {**dict.fromkeys(("urls", "headers", "endpoint_path", "models"), Reveals.NAME), "model": Reveals.MODEL},
}  # fmt: skip
CLIENT_UNITS = ("us", "ms", "share", "x")  # of reasons that say how late or how busy the client was
# Parts of a run that say how much was sent over its whole length: sums, series, what was in flight
LOAD_PARTS = ("telemetry", "cluster", "conversations", "sessions", "users", "watch", "steadiness", "files", "tap")


def withheld(document: Mapping[str, Any], limit: bool = False) -> dict[str, Any]:
    """A copy of a run.json or procedure.json that may be published; its entry `withheld` lists what is missing. *limit*: the
    load of the run belongs to a search.
    """
    return redacted_procedure(document) if "procedure" in document else redacted(document, limit)


def redacted(document: Mapping[str, Any], limit: bool = False) -> dict[str, Any]:
    """A copy of a run.json that may be published; its entry `withheld` lists what is missing. *limit*: the load of the run
    belongs to a search.
    """
    hidden = WITH_LOAD if limit or reveals_capacity(document) else ALWAYS
    asked = (document.get("config") or {}).get("telemetry") or {}
    redaction = Redaction(hidden, names_of(document), asked.get("metrics") or ())
    found: dict[str, Any] = redaction.table(document, RunDocument)
    if document.get("command"):
        found["command"] = command_without_values(document["command"], Reveals.LOAD not in hidden)
    if Reveals.LOAD in hidden:
        found |= {name: None for name in LOAD_PARTS if name in found}
        found |= {"incidents": [], "workers": []}
    return {**found, "withheld": OF_LOAD if Reveals.LOAD in hidden else OF_NAMES}


def without_names(document: Mapping[str, Any]) -> RunDocument:
    """A run.json with all figures and without names, for the export of rows."""
    redaction = Redaction(frozenset((Reveals.NAME, Reveals.SENTENCE)), names_of(document))
    found: RunDocument = convert(redaction.table(document, RunDocument), RunDocument)
    return found


def reveals_capacity(document: Mapping[str, Any]) -> bool:
    """Whether the throughput of a run is a capacity: a closed loop, also of a class, all requests at once, or a cap."""
    asked = (document.get("config") or {}).get("load") or {}
    description = (document.get("plan") or {}).get("description") or {}
    planned = description.get("load") or {}
    loops = [(one.get("load") or {}).get("loop") for one in (description, *(description.get("classes") or ()))]
    at_once = asked.get("rate") is None or (planned.get("arrivals") or {}).get("rate") == "inf"
    capped = any(asked.get(name) is not None for name in ("max_concurrency", "max_prefill"))
    return at_once or "closed" in loops or capped


def names_of(document: Mapping[str, Any]) -> dict[str, str]:
    """The replacements of URLs, `target-0` in the order in which rows number them, of the hosts of the run, `host-0`, and of
    servers of a router, `backend-0`.
    """
    config, target = document.get("config") or {}, document.get("target") or {}
    found = {"host": "host"}  # where telemetry comes from
    for entry in document.get("hosts") or ():
        for name in (entry.get("name"), entry.get("address")):
            found.setdefault(str(name), f"host-{entry.get('host')}")
    for urls in ((config.get("target") or {}).get("urls"), target.get("urls"), target.get("addresses")):
        for number, url in enumerate(urls or ()):
            found.setdefault(str(url), f"target-{number}")
            found.setdefault(f"{url}/metrics", f"target-{number}/metrics")
    backends = {str(name) for entry in document.get("backend_names") or () for name in entry.get("names") or ()}
    for number, name in enumerate(sorted(backends)):
        found.setdefault(name, f"backend-{number}")
    return found


class Redaction:
    """One pass over a document: *hidden* are the kinds that are withheld, *names* replaces known names, *series* are the
    server's own telemetry series that the user named.
    """

    def __init__(self, hidden: frozenset[Reveals], names: Mapping[str, str], series: Collection[str] = ()) -> None:
        self.hidden = hidden
        self.names = names
        self.series = series

    def table(self, found: Mapping[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
        """A table of *kind*, without the keys that the type does not have."""
        known = fields(kind)
        of_settings = SETTINGS.get(kind, {})
        return {
            key: self.field(value, known[key], of_settings.get(key) or declared(known[key]))
            for key, value in found.items()
            if key in known
        }

    def field(self, value: Any, kind: Any, what: Reveals) -> Any:
        """One value that reveals *what*."""
        if (what in self.hidden or is_path(value, what)) and not (isinstance(value, Mapping) and struct_of(kind)):
            if what is Reveals.SHARE:
                return coarse(value)
            return self.withheld(value, what)
        if isinstance(value, Mapping):
            return self.mapping(value, kind)
        if isinstance(value, (list, tuple)):
            item = next((get_args(one)[0] for one in members(kind) if get_origin(one) in (tuple, list)), Any)
            return [self.field(each, item, declared(item)) for each in value]
        return value

    def mapping(self, value: Mapping[str, Any], kind: Any) -> Any:
        struct = struct_of(kind)
        if struct is not None:
            return self.special(self.table(value, struct), struct)
        for one in members(kind):
            if get_origin(one) is dict:
                inner = get_args(one)[1]
                return {name: self.named(name, each, inner) for name, each in value.items()}
        return {}

    def named(self, name: str, value: Any, kind: Any) -> Any:
        """A value of a table with free names; a metric reveals what its name says."""
        if isinstance(value, Mapping) and members(kind)[0] in (Metric, ServerFigure):
            found = self.mapping(value, kind)
            what = reveals(name, str(value.get("unit")))
            shown = what is Reveals.LOAD and name not in THROUGHPUTS and not found.get("value")  # none of something
            for key in ("value", "max") if what in self.hidden and not shown else ():
                if what is Reveals.SHARE:
                    found |= {key: coarse(found[key])} if key == "value" and key in found else {}
                elif found.get(key) is not None:
                    found[key] = HIDDEN
            if members(kind)[0] is ServerFigure and Reveals.LOAD in self.hidden and found.get("value") is not None:
                found["value"] = HIDDEN
            return found
        return self.field(value, kind, declared(kind))

    def special(self, found: dict[str, Any], kind: type) -> dict[str, Any]:
        """Parts whose fields reveal something only together."""
        if kind is TelemetryEntry and Reveals.ENGINE in self.hidden:
            named_by_user = found.get("name") in self.series  # which may be the server's memory under its own name
            if named_by_user or reveals(str(found.get("name")), "") in self.hidden:
                found = {name: HIDDEN if isinstance(each, float) else each for name, each in found.items()}
            return {**found, "name": HIDDEN} if named_by_user else found
        if kind is HostEntry and Reveals.LOAD in self.hidden:
            found |= {"watch": {}, "workers": []}
        if kind is Certificate and Reveals.LOAD in self.hidden:
            for name in ("host", "ports", "arrival_tests", "seconds", "first_fill_us"):
                found.pop(name, None)
            found["workers"] = [{"cpu_share": each.get("cpu_share")} for each in found.get("workers") or ()]
            found["reasons"] = [
                {name: HIDDEN if name in ("value", "limit", "text") else each for name, each in reason.items()}
                if reason.get("unit") not in CLIENT_UNITS
                else reason
                for reason in found.get("reasons") or ()
            ]
        return found

    def withheld(self, value: Any, what: Reveals) -> Any:
        """The replacement of *value*: nothing for nothing, a number for a known name."""
        if value is None or isinstance(value, bool) or value == "":
            return value
        if what is Reveals.LOAD and isinstance(value, (int, float)) and value == 0:
            return value
        if isinstance(value, Mapping):
            return {name: self.withheld(each, what) for name, each in value.items()} if what is Reveals.LOAD else {}
        if isinstance(value, (list, tuple)):
            if all(isinstance(each, str) and each in self.names for each in value):
                return [self.names[each] for each in value]
            return [HIDDEN for each in value if isinstance(each, str)]
        return self.names.get(value, HIDDEN) if isinstance(value, str) else HIDDEN


def struct_of(kind: Any) -> type[msgspec.Struct] | None:
    return next((one for one in members(kind) if isinstance(one, type) and issubclass(one, msgspec.Struct)), None)


def declared(kind: Any) -> Reveals:
    """What a field of this type reveals by its annotation, or by that of the items of a list or table."""
    if get_origin(kind) is Annotated:
        for note in get_args(kind)[1:]:
            if isinstance(note, msgspec.Meta) and note.extra and "reveals" in note.extra:
                found: Reveals = note.extra["reveals"]
                return found
    return Reveals.NOTHING


def is_path(value: object, what: Reveals) -> bool:
    """Whether a text that may be a name or a path is a path. A model's name may have slashes, a tokenizer's has none."""
    if not isinstance(value, str):
        return False
    if what is Reveals.CURVE:
        return value.lower().startswith("series:")
    if what is Reveals.FILE:
        return "/" in value or value.endswith(".json")
    return what is Reveals.MODEL and (
        value.startswith(("/", "./", "../", "~")) or "\\" in value or ("/" in value and value.endswith(MODEL_FILES))
    )


def coarse(value: Any) -> Any:
    """A share to three decimals, as all of its digits would reveal its denominator, a count."""
    if isinstance(value, Mapping):
        return {name: coarse(each) for name, each in value.items()}
    return round(value, 3) if isinstance(value, float) else value


MODEL_FILES = (".gguf", ".bin", ".safetensors", ".json")
COMMANDS = frozenset(
    ("fastllmload", "run", "quick", "procedure", "search", "sweep", "overhead", "ttft", "throughput", "tradeoff", "itl",
     "capacity", "fairness", "prefix-cache", "memory-pressure", "long-context", "guardrail")
)  # fmt: skip
# Options of a command line whose values reveal nothing
PUBLIC_OPTIONS = frozenset(
    ("--duration", "-d", "--warmup", "--ramp-share", "--timeout", "--grace", "--arrival", "--burstiness", "--workload",
     "--isl", "--osl", "--tokenizer", "--prompt-form", "--counting", "--context-limit", "--continuous-usage",
     "--temperature", "--top-p", "--top-k", "--min-p", "--presence-penalty", "--frequency-penalty", "--repetition-penalty",
     "--random-range-ratio", "--prefix-len", "--num-prefixes", "--prefix-share", "--prefix-zipf", "--model-zipf",
     "--model-order", "--image", "--turns", "--think-time", "--history", "--tool-turns", "--cancel-share", "--cancel-after",
     "--slow-readers", "--abandon", "--workers", "--timestamps", "--transport", "--http-version",
     "--streams-per-connection", "--decode", "--record-text", "--spin-budget", "--seed", "--goodput",
     "--itl-option", "--prefill-deadline", "--decode-deadline", "--reading-speed", "--gpus", "--ui", "--model", "-m",
     "--endpoint-type", "--telemetry-interval", "--power", "--repetition", "--runs", "--level-duration", "--objective",
     "--confidence", "--preset", "--as", "--hosts", "--collect", "--on-host-loss")
)  # fmt: skip
# Those whose value is the load: a declared rate is public, a capacity is not
LOAD_OPTIONS = frozenset(
    ("-r", "--rate", "-c", "--concurrency", "--max-concurrency", "--max-prefill", "-n", "--num-requests")
)
# Those whose value may be a path
PATH_OPTIONS = {
    "--tokenizer": Reveals.FILE,
    **dict.fromkeys(("--model", "-m"), Reveals.MODEL),
    **dict.fromkeys(("--rate", "-r"), Reveals.CURVE),
}


def command_without_values(command: Sequence[str], with_load: bool) -> list[str]:
    """The words of a command line without the values of options that may reveal something."""
    return list(_words(command, PUBLIC_OPTIONS | LOAD_OPTIONS if with_load else PUBLIC_OPTIONS))


def _words(command: Sequence[str], public: frozenset[str]) -> Iterator[str]:
    def shown(option: str, value: str) -> bool:
        return option in public and not is_path(value, PATH_OPTIONS.get(option, Reveals.NOTHING))

    option = ""
    for word in command:
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            yield word if shown(option, word) or (not option and word in COMMANDS) else HIDDEN
            continue
        option = name
        if word.startswith("--"):
            yield f"{name}={HIDDEN}" if equals and not shown(name, value) else word
        else:  # -r500
            yield f"{word[:2]}{HIDDEN}" if len(word) > 2 and not shown(word[:2], word[2:]) else word


def redacted_procedure(document: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a procedure.json that may be published; its entry `withheld` lists what is missing.

    A capacity test keeps only its description. Any other test keeps its latencies: it loses its loads and counts, the tables
    and sentences that are not declared to reveal nothing, its levels and its plots.
    """
    name = str(document.get("procedure"))
    limits = name in CAPACITY_TESTS
    urls = (document.get("manifest") or {}).get("urls") or ()
    redaction = Redaction(WITH_LOAD, {str(url): f"target-{number}" for number, url in enumerate(urls)})
    found: dict[str, Any] = redaction.table(document, ProcedureDocument)
    public = frozenset(map(str, document.get("public") or ()))
    findings = document.get("findings") or {}
    found |= {
        "findings": dict.fromkeys(findings, HIDDEN)
        if limits
        else redaction.table(findings, FINDINGS.get(name, FindingValues)),
        "tables": [] if limits else list(public_tables(document.get("tables") or (), public)),
        "sentences": [] if limits else [text for text in document.get("sentences") or () if text in public],
        "plots": [],
        "levels": [],
        "withheld": OF_LIMITS if limits else OF_LOAD,
    }
    for kind in ("deviations", "warnings"):
        found[kind] = remarks(document.get(kind) or (), public)
    if found.get("compliance"):
        found["compliance"]["deviations"] = remarks((document["compliance"].get("deviations") or ()), public)
    found["public"] = [text for kind in ("sentences", "deviations", "warnings") for text in found[kind]]
    if document.get("command"):
        found["command"] = command_of_procedure(document["command"], limits)
    return found


def remarks(texts: Iterable[str], public: Collection[str]) -> list[str]:
    """Those of *texts* that reveal nothing, and that there are others."""
    kept = [text for text in texts if text in public]
    return kept + [OTHERS] * any(text not in public for text in texts)


def command_of_procedure(words: Any, limits: bool) -> Any:
    """Withheld completely for a capacity test, as its options bracket the result."""
    if limits or isinstance(words, str) or any(str(word).startswith("--capacity") for word in words):
        return HIDDEN
    return command_without_values(words, with_load=False)


def public_tables(tables: Iterable[Mapping[str, Any]], public: Collection[str]) -> Iterable[dict[str, Any]]:
    """Those of *tables* that are declared to reveal nothing as a whole, without the cells that do. A table of an earlier
    version declares nothing.
    """
    for table in tables:
        if table.get("reveals") != Reveals.NOTHING.value:
            continue
        of_columns, of_rows = table.get("column_reveals") or (), table.get("row_reveals") or ()
        rows = [  # the first column names the rows
            [cell if k == 0 else public_cell(cell, {*of_columns[k : k + 1], *of_rows[r : r + 1]})
             for k, cell in enumerate(row)]
            for r, row in enumerate(table.get("rows") or ())
        ]  # fmt: skip
        yield {
            **table,
            "columns": table.get("public_columns") or table.get("columns") or [],
            "rows": rows,
            "notes": [note for note in table.get("notes") or () if note in public],
        }


def public_cell(cell: Any, kinds: Collection[str]) -> Any:
    """A cell of a column and a row that reveal *kinds*; 0 and missing cells reveal nothing."""
    if not {Reveals(kind) for kind in kinds} <= SHOWN:
        return cell if cell is None or cell == 0 else HIDDEN
    return coarse(cell) if Reveals.SHARE.value in kinds else cell
