"""Reads the settings of a run from its options: parses the values, derives what depends on others, checks the rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from fastllmload.cli.options.classes import replayed_urls, with_classes
from fastllmload.cli.options.parsers import TRACES
from fastllmload.cli.options.rules import validate_run, validate_traffic
from fastllmload.cli.options.sources import (
    Fields,
    RawOption,
    RawOptions,
    choose_sensor,
    parse_options,
    spread_rate,
)
from fastllmload.cli.options.spellings import spell_out
from fastllmload.cli.options.table import BY_PARAMETER
from fastllmload.cli.options.target_rules import choose_http_version
from fastllmload.endpoint import ALIASES, ENDPOINTS, resolve_endpoint
from fastllmload.endpoint.identity import resolved, token_of
from fastllmload.errors import InputError
from fastllmload.files import key_in, usable_key
from fastllmload.redact import (
    Redactor,
    body_secrets,
    class_secrets,
    header_line_secrets,
    labelled,
    public_body,
    request_secrets,
    table_secrets,
    url_secrets,
)
from fastllmload.settings import (
    DEFAULT_ENDPOINT,
    Client,
    Hosts,
    Load,
    Output,
    RunSettings,
    Secret,
    ServerControl,
    SessionIdentity,
    Target,
    Telemetry,
    UserBehavior,
    Workload,
)

TLS_OPTIONS = ("insecure", "cacert", "cert", "key", "server_name", "tls_resume")
GROUPS = {
    "target": Target,
    "load": Load,
    "behaviour": UserBehavior,
    "workload": Workload,
    "client": Client,
    "output": Output,
    "telemetry": Telemetry,
    "hosts": Hosts,
    "session": SessionIdentity,
    "control": ServerControl,
}
SECRETS: dict[str, Callable[[str], list[str]]] = {  # parameter: the secrets in its text
    "api_key": lambda text: [text],
    "header": header_line_secrets,
    "session_header": header_line_secrets,
    "url": url_secrets,
    "telemetry_url": url_secrets,
    "replica": url_secrets,
    "between": request_secrets,
    "extra_body": body_secrets,
    "class": class_secrets,
}
DEFAULT_SECONDS = 60.0


def read_settings(
    raw_options: RawOptions, environment: Mapping[str, str], redactor: Redactor, complete: bool = True
) -> tuple[RunSettings, Secret | None]:
    """The settings that *raw_options* ask for, and the API key. Adds secrets to *redactor*. InputError.

    Not *complete*: a procedure decides load and duration.
    """
    _add_environment(raw_options, environment)
    _register_secrets(raw_options, redactor)
    secret = _api_key(raw_options, redactor)
    fields = parse_options(raw_options)
    _check_admin_key(fields, redactor)
    spell_out(fields, raw_options)
    spread_rate(raw_options, fields, DEFAULT_SECONDS)
    choose_sensor(raw_options, fields)
    choose_http_version(fields)
    validate_run(raw_options, fields, complete)
    if fields.get("load.arrival") == "trace":  # which is what a trace does anyway
        del fields["load.arrival"]
    if "models" in raw_options:
        fields["target.model"] = fields["target.models"][0][0]
    if "unix_socket" in raw_options and "target.urls" not in fields:
        fields["target.urls"] = ("http://localhost",)
    if complete:
        _complete(raw_options, fields)
    elif "class" in raw_options:
        raise InputError("option-not-applicable", "--class belongs to a run; a procedure sets its own load")
    if "plan" in raw_options and "class" in raw_options:
        fields["output.plan_urls"] = replayed_urls(raw_options["class"])
    if "class" not in raw_options and not resolve_endpoint(fields.get("target.endpoint_type", DEFAULT_ENDPOINT)).tokens:
        fields["workload.osl"] = "1"  # no field of a body has it
    settings = _settings(fields)
    if "class" in raw_options and "plan" not in raw_options:
        settings = with_classes(settings, raw_options, fields, fields.get("load.duration", DEFAULT_SECONDS))
    validate_tls_options(raw_options, settings)
    validate_session_body(settings)
    if settings.output.save_plan is not None:
        validate_stored_bodies(settings, "--save-plan")
        validate_saved_classes(settings)
    if not settings.classes and settings.output.plan is None:
        validate_traffic(settings, complete)
    return settings, secret


def _add_environment(raw_options: RawOptions, environment: Mapping[str, str]) -> None:
    asked = raw_options["endpoint_type"].texts[0] if "endpoint_type" in raw_options else DEFAULT_ENDPOINT
    spoken = ENDPOINTS.get(ALIASES.get(asked, asked), ENDPOINTS[DEFAULT_ENDPOINT])
    for name, parameter, rivals in (
        ("OPENAI_BASE_URL", "url", ("unix_socket", "host", "port")),
        (spoken.key_variable, "api_key", ("api_key_file",)),
        ("OPENAI_API_KEY", "api_key", ("api_key_file",)),
    ):
        found = environment.get(name, "")
        if found != "" and parameter not in raw_options and not any(rival in raw_options for rival in rivals):
            raw_options[parameter] = RawOption(BY_PARAMETER[parameter], name, (found,))


def _register_secrets(raw_options: RawOptions, redactor: Redactor) -> None:
    """Runs before anything is parsed, since a message about a wrong value must not show a secret either."""
    for parameter, secrets_of in SECRETS.items():
        for text in raw_options[parameter].texts if parameter in raw_options else ():
            for secret in secrets_of(text):
                redactor.add(secret)
    for table in raw_options["class"].tables if "class" in raw_options else ():
        for secret in table_secrets(table):
            redactor.add(secret)


def _api_key(raw_options: RawOptions, redactor: Redactor) -> Secret | None:
    if "api_key" in raw_options and "api_key_file" in raw_options:
        raise InputError("options-conflict", "--api-key and --api-key-file are both given; give one")
    if "api_key_file" in raw_options:
        key = key_in(raw_options["api_key_file"].texts[0], "--api-key-file")
        redactor.add(key)
        return Secret(key)
    if "api_key" not in raw_options:
        return None
    return Secret(usable_key(raw_options["api_key"].texts[0].strip(), raw_options["api_key"].where))


def _check_admin_key(fields: Fields, redactor: Redactor) -> None:
    path = fields.get("control.admin_key_file")
    if path is not None:
        redactor.add(key_in(path, "--admin-key-file"))


def _complete(raw_options: RawOptions, fields: Fields) -> None:
    """Set the default duration of a load that has no end."""
    own_end = fields.get("workload.name") in TRACES and not {"load.rate", "load.concurrency"} & fields.keys()
    if not {"plan", "num_requests", "duration"} & raw_options.keys() and not own_end:
        fields["load.duration"] = DEFAULT_SECONDS


def _settings(fields: Fields) -> RunSettings:
    groups: dict[str, dict[str, Any]] = {group: {} for group in GROUPS}
    for field, value in fields.items():
        group, _, name = field.partition(".")
        groups[group][name] = value
    return RunSettings(**{group: struct(**groups[group]) for group, struct in GROUPS.items()})


def validate_tls_options(raw_options: RawOptions, settings: RunSettings) -> None:
    """InputError for TLS options of a run that connects to no target with TLS."""
    given = [
        raw_options[each].where for each in TLS_OPTIONS if each in raw_options and raw_options[each].state is not False
    ]
    named = dict.fromkeys(
        (
            *settings.target.urls,
            *(url for one in settings.classes for url in one.urls),
            *(url for _, urls in settings.output.plan_urls for url in urls),
            *(labelled(url)[1].removeprefix("prometheus+") for url in settings.telemetry.urls),
        )
    )
    own = any(name.replace("-", "_") in ("tls", "tls_cert") for name, _ in settings.target.simulate)
    if not given or own or any(url.lower().startswith("https://") for url in named):
        return
    if not named:
        why = (
            "the simulated engine is used without TLS; name a target with --url https://HOST or add --simulate tls=true"
        )
    elif "unix_socket" in raw_options and "url" not in raw_options:
        why = "a socket is used without TLS unless the URL is https; add --url https://NAME"
    else:
        why = f"no URL is https ({', '.join(named)}); write https://"
    has, it = ("has", "it") if len(given) == 1 else ("have", "them")
    raise InputError("option-not-applicable", f"{' and '.join(given)} {has} no effect: {why}, or leave {it} out")


def validate_session_body(settings: RunSettings) -> None:
    """InputError for a field of the body that requests have already, from their protocol or --extra-body."""
    named = resolved(settings.session)
    fields = [path.partition(".")[0] for path, _ in named.body]
    back = () if named.token is None else token_of(named.token).sent_path
    if back and back[0] in fields:
        raise InputError(
            "options-conflict",
            f"--session-token and --session-body both set {back[0]!r} in the body; send the token in another field",
        )
    fields += back[:1]
    for one in (None, *settings.classes) if fields else ():
        endpoint = resolve_endpoint((one and one.endpoint_type) or settings.target.endpoint_type)
        workload = (one or settings).workload
        extra = {} if workload.extra_body is None else json.loads(workload.extra_body)
        own = {*endpoint.body("", {}, workload, extra), *endpoint.prompt_fields}
        own |= {"previous_response_id"} if workload.history == "stored" else set()
        for field in fields:
            if field in own:
                raise InputError(
                    "options-conflict",
                    f"{'--session-token' if (field,) == back[:1] else '--session-body'} sets {field!r}, which requests of "
                    f"{endpoint.name} have already; choose another "
                    "field, or leave it out of --extra-body",
                )


def validate_saved_classes(settings: RunSettings) -> None:
    """InputError for a saved plan with a class that begins with sessions under way: it would lack what warms these up."""
    begun = next((one.name for one in settings.classes if one.workload.session_start != "fresh"), None)
    if begun is not None:
        raise InputError(
            "option-not-applicable",
            f"class {begun!r} begins with sessions under way (session-start), whose warm-up a saved plan of classes does "
            "not have; save it without session-start, or repeat the run from its options and --seed",
        )


def validate_stored_bodies(settings: RunSettings, where: str) -> None:
    """InputError where the option *where* stores all bodies of a plan and they contain a credential."""
    for workload in (settings.workload, *(one.workload for one in settings.classes)):
        if workload.extra_body is not None and public_body(workload.extra_body) != workload.extra_body:
            raise InputError(
                "credential-exposed",
                f"{where} writes every body to a file, and --extra-body puts a credential into them "
                f"({public_body(workload.extra_body)}); send it as a header with -H, or leave {where} out",
            )
