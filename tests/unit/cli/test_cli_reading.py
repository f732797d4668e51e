"""What the user gives, in any place, becomes RunSettings and Secret, or one sentence."""

from __future__ import annotations

import io
import math
from pathlib import Path

import msgspec
import pytest
from refusals import says
from support.command_lines import refused, settings_of

from fastllmload.cli.options.table import OPTIONS
from fastllmload.redact import Redactor
from fastllmload.settings import RunSettings


def test_the_command_in_the_readme():
    settings, secret = settings_of("--rate", "500", "--duration", "300")
    assert (settings.load.rate, settings.load.duration, settings.target.urls, secret) == (
        500.0,
        300.0,
        (),
        None,
    )


def test_what_is_not_given_keeps_the_default_of_the_settings():
    settings, _ = settings_of("--rate", "5", "--duration", "1")
    bare = msgspec.structs.replace(RunSettings().load, rate=5.0, duration=1.0)
    assert settings == RunSettings(load=bare)


EVERY_OPTION = {
    "url": ("http://h:1", "target.urls", ("http://h:1",)),
    "host": ("h", "target.urls", ("http://h:8000",)),
    "port": ("9", "target.urls", ("http://127.0.0.1:9",)),
    "random-range-ratio": ("0.5", "workload.isl", "uniform:50,150"),
    "top-p": ("90%", "workload.extra_body", '{"top_p": 0.9}'),
    "top-k": ("5", "workload.extra_body", '{"top_k": 5}'),
    "min-p": ("0.1", "workload.extra_body", '{"min_p": 0.1}'),
    "presence-penalty": ("-1", "workload.extra_body", '{"presence_penalty": -1.0}'),
    "frequency-penalty": ("0.5", "workload.extra_body", '{"frequency_penalty": 0.5}'),
    "repetition-penalty": ("1.1", "workload.extra_body", '{"repetition_penalty": 1.1}'),
    "model": ("m", "target.model", "m"),
    "models": ("a=5,org/b,c=0.5", "target.models", (("a", 5.0), ("org/b", 1.0), ("c", 0.5))),
    "model-zipf": ("1.5", "target.model_zipf", 1.5),
    "model-order": ("round-robin", "target.model_order", "round-robin"),
    "endpoint-type": ("vllm", "target.endpoint_type", "openai-completions"),
    "endpoint": ("/x", "target.endpoint_path", "/x"),
    "header": ("A: b", "target.headers", (("A", "b"),)),
    "unix-socket": ("/s", "target.unix_socket", "/s"),
    "source-address": ("127.0.0.2", "target.source_addresses", ("127.0.0.2",)),
    "insecure": (True, "target.insecure", True),
    "cacert": ("c", "target.cacert", "c"),
    "cert": ("c", "target.client_cert", "c"),
    "key": ("k", "target.client_key", "k"),
    "server-name": ("n", "target.server_name", "n"),
    "backend-header": ("X-Served-By", "target.backend_header", "X-Served-By"),
    "preflight-timeout": ("2m", "target.preflight_timeout", 120.0),
    "simulate": ("null=true", "target.simulate", (("null", "true"),)),
    "rate": ("inf", "load.rate", math.inf),
    "arrival": ("gamma", "load.arrival", "gamma"),
    "burstiness": ("0.5", "load.burstiness", 0.5),
    "concurrency": ("64", "load.concurrency", 64),
    "max-concurrency": ("9", "load.max_concurrency", 9),
    "max-prefill": ("3", "load.max_prefill", 3),
    "num-requests": ("1k", "load.num_requests", 1000),
    "duration": ("5m", "load.duration", 300.0),
    "warmup": ("30s", "load.warmup_seconds", 30.0),
    "ramp-share": ("0", "load.ramp_share", 0.0),
    "timeout": ("200ms", "load.timeout", 0.2),
    "grace": ("10", "load.grace", 10.0),
    "stop-on-failures": ("0.5", "load.stop_on_failures", 0.5),
    "repetition": ("2", "load.repetition", 2),
    "workload": ("synthetic-skewed", "workload.name", "synthetic-skewed"),
    "dataset-path": ("f", "workload.dataset_path", "f"),
    "prompt": ("Hello", "workload.prompt", "Hello"),
    "dataset-class": ("chat", "workload.dataset_class", "chat"),
    "dataset-lengths": (
        "min-input=4,max-total=2k",
        "workload.dataset_lengths",
        (("min-input", 4), ("max-total", 2000)),
    ),
    "hf-split": ("test[:9]", "workload.hf_split", "test[:9]"),
    "hf-subset": ("main", "workload.hf_subset", "main"),
    "dataset-column": ("prompt=a,answer=b", "workload.dataset_columns", (("prompt", "a"), ("answer", "b"))),
    "trace-speed": ("2.5", "workload.trace_speed", 2.5),
    "trace-from": ("1m", "workload.trace_from", 60.0),
    "trace-to": ("2m", "workload.trace_to", 120.0),
    "trace-loop": (True, "workload.trace_loop", True),
    "trace-timing": ("recorded", "workload.trace_timing", "recorded"),
    "trace-max-wait": ("user=30s,tool=2m", "workload.trace_max_wait", "user=30s,tool=2m"),
    "session-start": ("share:0.2,0.8", "workload.session_start", "share:0.2,0.8"),
    "trace-prompts": ("delta", "workload.trace_prompts", "delta"),
    "cache-blocks": ("4k", "workload.cache_blocks", 4000),
    "isl": ("256", "workload.isl", "256"),
    "osl": ("uniform:1,9", "workload.osl", "uniform:1,9"),
    "tokenizer": ("none", "workload.tokenizer", "none"),
    "prompt-form": ("ids", "workload.prompt_form", "ids"),
    "no-model-check": (True, "target.model_check", False),
    "stream": (False, "workload.streaming", False),
    "ignore-eos": (False, "workload.ignore_eos", False),
    "continuous-usage": ("off", "workload.continuous_usage", "off"),
    "temperature": ("none", "workload.temperature", None),
    "extra-body": ("{}", "workload.extra_body", "{}"),
    "prefix-len": ("5", "workload.prefix_len", 5),
    "num-prefixes": ("3", "workload.num_prefixes", 3),
    "prefix-share": ("0.8", "workload.prefix_share", 0.8),
    "prefix-zipf": ("1.5", "workload.prefix_zipf", 1.5),
    "image": ("640x480:2", "workload.image", "640x480:2"),
    "counting": ("B", "workload.counting", "B"),
    "context-limit": ("8k", "workload.context_limit", 8000),
    "workers": ("2", "client.workers", 2),
    "pin": ("0,1", "client.pin", (0, 1)),
    "timestamps": ("user", "client.timestamps", "user"),
    "transport": ("asyncio", "client.transport", "asyncio"),
    "decode": ("strict", "client.decode", "strict"),
    "http-version": ("2", "client.http_version", "2"),
    "streams-per-connection": ("50", "client.streams_per_connection", 50),
    "tls-resume": (True, "target.tls_resume", True),
    "fresh-connections": (True, "client.fresh_connections", True),
    "record-text": ("on", "client.record_text", "on"),
    "spin-budget": ("0.5", "client.spin_budget", 0.5),
    "seed": ("0", "client.seed", 0),
    "ray": ("10.0.0.1:6379", "hosts.address", "10.0.0.1:6379"),
    "hosts": ("3", "hosts.hosts", 3),
    "ray-resource": ("load", "hosts.resource", "load"),
    "collect": ("summary", "hosts.collect", "summary"),
    "on-host-loss": ("stop", "hosts.on_host_loss", "stop"),
    "affinity": ("smg", "session.affinity", "smg"),
    "session-header": ("X-S: a{session}", "session.headers", (("X-S", "a{session}"),)),
    "session-body": ("metadata.who: {user}", "session.body", (("metadata.who", "{user}"),)),
    "session-children": ("parent", "session.children", "parent"),
    "session-token": ("x-t=X-U", "session.token", "x-t=X-U"),
    "session-end": ("/end?s={session}", "session.end", "POST /end?s={session}"),
    "between": ("/x?y=1", "control.between", ("POST /x?y=1",)),
    "replica": ("http://e:1", "control.replicas", ("http://e:1",)),
    "server": ("sglang", "control.server", "sglang"),
    "telemetry-url": ("http://h:1", "telemetry.urls", ("http://h:1/metrics",)),
    "telemetry-match": ('namespace="llm"', "telemetry.matchers", 'namespace="llm"'),
    "scrape-metric": ("a:b", "telemetry.metrics", ("a:b",)),
    "telemetry-idle": ("5", "telemetry.idle", 5.0),
    "telemetry-interval": ("500ms", "telemetry.interval", 0.5),
    "telemetry": (False, "telemetry.enabled", False),
    "power": ("rapl", "telemetry.power", "rapl"),
    "power-command": ("echo 5", "telemetry.power_command", "echo 5"),
    "gpu-index": ("0,2-3", "telemetry.gpus", (0, 2, 3)),
    "prometheus": ("9400", "telemetry.prometheus", "127.0.0.1:9400"),
    "goodput": ("ttft:200", "output.goodput", (("ttft", 200.0),)),
    "itl-option": ("B", "output.itl_option", "B"),
    "percentile-metrics": ("ttft,e2el", "output.percentile_metrics", ("ttft", "e2e")),
    "metric-percentiles": ("99,50", "output.metric_percentiles", (50.0, 99.0)),
    "prefill-deadline": ("256:80,4k:400", "output.prefill_deadline", ((256.0, 80.0), (4000.0, 400.0))),
    "decode-deadline": ("40", "output.decode_deadline", 40.0),
    "reading-speed": ("5", "output.reading_speed", 5.0),
    "ttft-net-adjusted": (True, "output.ttft_net_adjusted", True),
    "output": ("o", "output.directory", "o"),
    "metadata": ("a=b", "output.metadata", (("a", "b"),)),
    "declare": ("a=b", "output.declare", (("a", "b"),)),
    "gpus": ("8", "output.gpus", 8),
    "price-per-hour": ("20.5", "output.price_per_hour", 20.5),
    "save-plan": ("s", "output.save_plan", "s"),
    "plan": ("p", "output.plan", "p"),
    "ui": ("none", "output.ui", "none"),
    "turns": ("3-8", "workload.turns", "uniform:3,8"),
    "think-time": ("2s", "workload.think_time", "2s"),
    "history": ("planned", "workload.history", "planned"),
    "tool-turns": ("0.5", "workload.tool_turns", 0.5),
    "cancel-share": ("0.1", "behaviour.cancel_share", 0.1),
    "cancel-after": ("20tok", "behaviour.cancel_after", "20tok"),
    "slow-readers": ("0.05:20tok/s", "behaviour.slow_readers", "0.05:20tok/s"),
    "abandon": ("ttft:5s", "behaviour.abandon", "ttft:5s"),
    "disable-tqdm": (True, "output.ui", "plain"),
    "strict": (True, "output.strict", True),
}
TRACE = ["--workload", "azure", "--dataset-path", "f"]
COMPANIONS = {  # options that an option requires
    "random-range-ratio": ["--rate", "1", "--isl", "100", "--osl", "10"],
    **{name: ["--rate", "1", "--temperature", "none"] for name in ("top-p", "top-k", "min-p")},
    "model-zipf": ["--rate", "1", "--models", "a,b"],
    "telemetry-match": ["--rate", "1", "--telemetry-url", "prometheus+http://h:9090"],
    "model-order": ["--rate", "1", "--models", "a,b"],
    "dataset-path": ["--workload", "azure"],
    **{
        name: ["--rate", "1", "--workload", "custom", "--dataset-path", "f"]
        for name in ("dataset-class", "dataset-lengths")
    },
    **{
        name: ["--rate", "1", "--workload", "hf", "--dataset-path", "f"]
        for name in ("hf-split", "hf-subset", "dataset-column")
    },
    **dict.fromkeys(("trace-speed", "trace-from", "trace-to"), TRACE),
    "trace-loop": [*TRACE, "--duration", "9"],
    **{
        name: ["--workload", "weka", "--dataset-path", "f"]
        for name in ("trace-timing", "trace-max-wait", "trace-prompts", "cache-blocks")
    },
    "session-start": ["--workload", "weka", "--dataset-path", "f", "--concurrency", "4"],
    "concurrency": [],
    "plan": [],
    "ray": ["--rate", "1", "-u", "http://h"],
    **{
        name: ["--rate", "1", "-u", "http://h", "--ray", "auto"]
        for name in ("hosts", "ray-resource", "collect", "on-host-loss")
    },
    **{name: ["--rate", "1", "-u", "https://h"] for name in ("insecure", "cacert", "server-name", "tls-resume")},
    "http-version": ["--rate", "1", "-u", "http://h"],
    "streams-per-connection": ["--rate", "1", "-u", "http://h", "--http-version", "2"],
    "cert": ["--rate", "1", "--key", "k", "-u", "https://h"],
    "key": ["--rate", "1", "--cert", "c", "-u", "https://h"],
    "rate": ["--num-requests", "5"],
    "prompt-form": ["--rate", "1", "--backend", "openai"],
    **{name: ["--rate", "1", "-u", "http://h"] for name in ("replica", "server")},
    "session-children": ["--rate", "1", "--affinity", "vllm"],
    **{name: ["--rate", "1", "--turns", "3"] for name in ("think-time", "history", "tool-turns")},
    "cancel-share": ["--rate", "1", "--cancel-after", "2s"],
    "cancel-after": ["--rate", "1", "--cancel-share", "0.1"],
    **{name: ["--rate", "1", "--prefix-len", "5"] for name in ("num-prefixes", "prefix-share", "prefix-zipf")},
}


def test_every_option_is_tried_below():
    ways = {option.name for option in OPTIONS} - {"api-key", "api-key-file", "admin-key-file", "config"}
    ways -= {"class"}  # test_cli_classes.py
    ways -= {"rate-series", "ramp-up-strategy", "ramp-up-start-rps", "ramp-up-end-rps"}  # test_cli_rate_curve.py
    assert ways == set(EVERY_OPTION)


ALIASES = [(option.name, flag) for option in OPTIONS for flag in option.flags if option.name in EVERY_OPTION]


@pytest.mark.parametrize(("name", "flag"), ALIASES)
def test_every_option_and_alias_arrives_in_its_field(name, flag):
    text, field, value = EVERY_OPTION[name]
    option = next(option for option in OPTIONS if option.name == name)
    arguments = [flag, text] if isinstance(text, str) else [flag if text is True else option.off_flag]
    settings, _ = settings_of(*arguments, *COMPANIONS.get(name, ["--rate", "1"]))
    group, _, attribute = field.partition(".")
    assert getattr(getattr(settings, group), attribute) == value


DOCUMENTED = """
--url --base-url --target --model --served-model-name --endpoint-type --backend --endpoint --rate
--request-rate --arrival --arrival-pattern --burstiness --arrival-smoothness --concurrency
--num-concurrent --max-concurrency --num-requests --num-prompts --request-count --num-samples
--duration --benchmark-duration --max-seconds --warmup --num-warmups --warmup-requests --workload
--dataset-name --isl --osl --input-len --random-input-len --prompt-tokens --output-len
--random-output-len --output-tokens --prefix-len --num-prefixes --tokenizer --ignore-eos
--temperature --extra-body --header --extra-request-body --api-key --insecure --cacert --cert --key
--timeout --grace --request-timeout-seconds --goodput --seed --random-seed --workers --pin
--timestamps --transport --decode --output --result-dir --artifact-dir --metadata --declare
--save-plan --plan --config --ui --disable-tqdm --strict -u -m -r -c -n -d -H -o
"""


def test_all_documented_names_are_there():
    flags = {flag for option in OPTIONS for flag in option.flags}
    assert set(DOCUMENTED.split()) <= flags
    both = {flag for option in OPTIONS for flag in (*option.flags, option.off_flag)}
    assert {"--connection-reuse", "--fresh-connections"} <= both


def test_the_same_by_config_file(tmp_path):
    config = tmp_path / "run.toml"
    config.write_text(
        'rate = 500\nduration = "5m"\nbase-url = ["http://a:1", "http://b:2"]\nignore_eos = false\n'
        'goodput = {ttft = 200, tpot = 50}\nconnection-reuse = false\n[metadata]\nsite = "x y"\n'
    )
    settings, _ = settings_of("--config", str(config), "--rate", "7")
    assert settings.load.rate == 7.0
    assert settings.load.duration == 300.0
    assert settings.target.urls == ("http://a:1", "http://b:2")
    assert settings.workload.ignore_eos is False
    assert settings.output.goodput == (("ttft", 200.0), ("tpot", 50.0))
    assert settings.client.fresh_connections is True
    assert settings.output.metadata == (("site", "x y"),)


def test_the_command_line_displaces_the_configs_other_loop(tmp_path):
    config = tmp_path / "run.toml"
    config.write_text("rate = inf\nnum-requests = 10\n")
    settings, _ = settings_of("--config", str(config), "--concurrency", "3")
    assert (settings.load.rate, settings.load.concurrency) == (None, 3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("reqest-rate = 5", ("option-unknown", "'reqest-rate'", "request-rate?")),
        ("zzz = 5", ("option-unknown", "'zzz'", "fastllmload run --help")),
        ("rate = [1, 2]", ("option-repeated", "rate in ", "2 values")),
        ("rate = true", ("option-value-type", "rate in ", "number or a")),
        ("strict = 1", ("option-value-type", "strict in ", "true or false")),
        ("rate = ", ("config-invalid", "not TOML")),
        ("rate = 5\nrequest-rate = 6", ("option-repeated", "given twice")),
        ('config = "x"', ("option-unknown", "'config'")),
        ('duration = "soon"', ("time-invalid", "duration in ", "'soon'")),
    ],
)
def test_a_wrong_config_is_one_sentence(tmp_path, text, words):
    config = tmp_path / "run.toml"
    config.write_text(text)
    sentence = (
        refused("--config", str(config), "--rate", "5") if "rate" not in text else refused("--config", str(config))
    )
    assert says(sentence, *words)
    assert str(config) in sentence


def test_a_missing_config(tmp_path):
    assert "cannot be read" in refused("--config", str(tmp_path / "none.toml"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-u", "http://a:1", "--cacert", "c"], ("option-not-applicable", "--cacert has", "(http://a:1)", "write https://")),
        (["--cert", "c", "--key", "k", "--server-name", "n"],
         ("option-not-applicable", "--cert and --key and --server-name", "simulated engine")),
        (["--unix-socket", "/s", "--insecure"], ("option-not-applicable", "--insecure", "--url https://NAME")),
        (["--class", "a rate=1 url=http://b:2", "--insecure"], ("option-not-applicable", "--insecure", "(http://b:2)")),
        (["--plan", "p", "-u", "http://a:1", "--class", "a url=http://b:2", "--insecure"],
         ("option-not-applicable", "(http://a:1, http://b:2)")),
    ],
)  # fmt: skip
def test_tls_options_of_a_run_without_tls_are_refused(arguments, sentence):
    """Who gives them believes that the connection is safe."""
    load = [] if {"--class", "--plan"} & set(arguments) else ["--rate", "1"]
    assert says(refused(*load, *arguments), *sentence)


@pytest.mark.parametrize(
    "urls",
    [["-u", "http://a:1", "-u", "HTTPS://b:2"], ["-u", "http://a:1", "--telemetry-url", "https://m:9/metrics"],
     ["-u", "https://name", "--unix-socket", "/s"], ["--simulate", "tls-cert=c"]],
)  # fmt: skip
def test_one_https_url_is_enough_for_tls_options(urls):
    settings, _ = settings_of("--rate", "1", "--cacert", "c", "--server-name", "n", *urls)
    assert (settings.target.cacert, settings.target.server_name) == ("c", "n")


def test_metrics_pages_may_have_labels():
    settings, _ = settings_of("--rate", "1", "--telemetry-url", "prefill=h:9400", "--gpu-telemetry", "b=http://h:1/x")
    assert settings.telemetry.urls == ("prefill=http://h:9400/metrics", "b=http://h:1/x")
    assert says(refused("--rate", "1", "--telemetry-url", "a b=http://h:1"), "value-invalid", "'a b'")
    assert says(refused("--rate", "1", "--telemetry-url", "=http://h:1"), "value-invalid", "''")


def test_a_class_may_be_the_only_one_that_speaks_tls():
    settings, _ = settings_of("--insecure", "--class", "a rate=1", "--class", "b rate=1 url=https://b:2")
    assert settings.target.insecure


def test_a_config_may_say_that_nothing_is_insecure(tmp_path):
    config = tmp_path / "run.toml"
    config.write_text("rate = 5\ninsecure = false\n")
    assert settings_of("--config", str(config))[0].target.insecure is False


LONG_KEY = "sk-" + "0123456789abcdef" * 6


@pytest.mark.parametrize(
    "arguments",
    [["--extra-body", '{"api_key": "' + LONG_KEY + '", "n": 1'], ["--extra-body", f'["api_key", "{LONG_KEY}"]'],
     ["--class", f"""a rate=1 extra-body='[{{"api_key": "{LONG_KEY}"'"""],
     ["--save-plan", "p", "--extra-body", '{"nested": {"api_key": "' + LONG_KEY + '"}}']],
)  # fmt: skip
def test_a_refused_body_shows_no_credential(arguments):
    redactor = Redactor()
    load = [] if "--class" in arguments else ["--rate", "1"]
    assert "0123" not in redactor(refused(*load, *arguments, redactor=redactor))


def test_a_credential_in_a_body_is_sent_but_no_plan_is_saved_with_it():
    text = f'{{"api_key": "{LONG_KEY}", "top_k": 5}}'
    redactor = Redactor()
    settings, _ = settings_of("--rate", "1", "--extra-body", text, redactor=redactor)
    assert settings.workload.extra_body == text and redactor(f"a {LONG_KEY}") == "a ***"
    assert says(refused("--rate", "1", "--extra-body", text, "--save-plan", "p"), "credential-exposed", "--save-plan")
    one = f"a rate=1 extra-body='{text}'"
    assert '{"api_key": "***", "top_k": 5}' in refused("--class", one, "--save-plan", "p")
    assert settings_of("--rate", "1", "--extra-body", '{"top_k": 5}', "--save-plan", "p")[0].output.save_plan == "p"


@pytest.mark.parametrize("entry", ['{api_key = "sk-1234"}', '[["sk-1234"]]'])
def test_a_table_where_a_text_belongs_is_not_quoted(tmp_path, entry):
    config = tmp_path / "run.toml"
    config.write_text(f"rate = 5\nextra-body = {entry}\n")
    sentence = refused("--config", str(config))
    assert "extra-body in " in sentence and says(sentence, "option-value-type") and "sk-" not in sentence


def test_the_environment_gives_target_and_key():
    environment = {"OPENAI_BASE_URL": "http://e:1/v1", "OPENAI_API_KEY": "sk-env"}
    settings, secret = settings_of("--rate", "1", environment=environment)
    assert settings.target.urls == ("http://e:1/v1",)
    assert secret.reveal() == "sk-env"
    settings, secret = settings_of("--rate", "1", "-u", "http://c:2", "--api-key", "sk-line", environment=environment)
    assert settings.target.urls == ("http://c:2",)
    assert secret.reveal() == "sk-line"


@pytest.mark.parametrize(
    ("environment", "messages", "chat"),
    [
        ({"ANTHROPIC_API_KEY": "sk-ant", "OPENAI_API_KEY": "sk-env"}, "sk-ant", "sk-env"),
        ({"ANTHROPIC_API_KEY": "sk-ant"}, "sk-ant", None),
        ({"OPENAI_API_KEY": "sk-env"}, "sk-env", "sk-env"),
    ],
)
def test_messages_have_a_key_of_their_own(environment, messages, chat):
    """An alias of the protocol does as well."""
    for endpoint, expected in (("anthropic-messages", messages), ("anthropic", messages), ("openai-chat", chat)):
        _, secret = settings_of("--rate", "1", "--endpoint-type", endpoint, environment=environment)
        assert (secret and secret.reveal()) == expected


def test_an_empty_environment_variable_is_none():
    settings, secret = settings_of("--rate", "1", environment={"OPENAI_BASE_URL": "", "OPENAI_API_KEY": ""})
    assert settings.target.urls == ()
    assert secret is None


def test_the_key_from_a_file_is_redacted_too(tmp_path):
    file = tmp_path / "key"
    file.write_text("sk-file\nsecond line\n")
    redactor = Redactor()
    _, secret = settings_of("--rate", "1", "--api-key-file", str(file), redactor=redactor)
    assert secret.reveal() == "sk-file"
    assert redactor("Bearer sk-file") == "Bearer ***"


def test_the_key_is_nowhere_in_the_settings():
    settings, _ = settings_of("--rate", "1", "--api-key", "sk-hidden")
    assert "sk-hidden" not in repr(settings) + msgspec.json.encode(settings).decode()


def test_a_key_that_no_header_can_carry():
    assert says(refused("--rate", "1", "--api-key", "a\nb"), "api-key-invalid", "--api-key")
    assert says(refused("--rate", "1", environment={"OPENAI_API_KEY": "ké"}), "api-key-invalid", "OPENAI_API_KEY")
    assert "give one" in refused("--rate", "1", "--api-key", "a", "--api-key-file", "b")
    assert "cannot be read" in refused("--rate", "1", "--api-key-file", "/nowhere/key")


def test_goodput_in_vllms_form_and_all_others():
    wanted = (("ttft", 200.0), ("tpot", 50.0), ("e2el", 3000.0))
    for arguments in (
        ["--goodput", "ttft:200", "tpot:50", "e2el:3000", "--rate", "1"],
        ["--rate", "1", "--goodput", "ttft:200 tpot:50", "--goodput", "e2el:3000"],
        ["--rate", "1", "--goodput", "ttft:200,tpot:50,e2el:3000"],
        ["--rate", "1", "--goodput=ttft:200", "tpot:50", "e2el:3000"],
    ):
        assert settings_of(*arguments)[0].output.goodput == wanted


def test_labels_keep_blanks_and_commas():
    settings, _ = settings_of("--rate", "1", "--metadata", "a=1, 2", "b=x=y", "--declare", "gpu=H 200")
    assert settings.output.metadata == (("a", "1, 2"), ("b", "x=y"))
    assert settings.output.declare == (("gpu", "H 200"),)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            "",
            ("load-missing", "--rate is missing", "--rate 500", "--duration 30"),
        ),
        ("--rate 5 --concurrency 3", ("rate-and-concurrency", "--rate 5 (open loop)", "--concurrency 3 (closed loop)")),
        ("--rate 0", ("rate-invalid", "--rate '0'")),
        ("--rate=-1", ("rate-invalid", "--rate '-1'")),
        ("--rate 5 --duration 0", ("time-invalid", "--duration '0'", "above 0")),
        ("--rate 5 --isl lots", ("length-invalid", "--isl 'lots'")),
        ("--rate inf", ("run-without-end", "--num-requests")),
        ("--rate inf --duration 5", ("run-without-end", "--num-requests")),
        ("--rate inf -n 5 --arrival gamma", ("option-not-applicable", "--arrival")),
        ("--concurrency 0", ("count-invalid", "--concurrency '0'", "above 0")),
        ("--concurrency 5 --arrival gamma", ("option-not-applicable", "--arrival", "open loop")),
        ("--concurrency 5 --max-concurrency 6", ("option-not-applicable", "--max-concurrency", "open loop")),
        ("--plan p --rate 5", ("option-prescribed", "--rate")),
        ("--plan p --seed 5", ("option-prescribed", "--seed")),
        (
            "--rate 5 --simulate null=1 --url http://h",
            ("options-conflict", "--simulate", "--url"),
        ),
        (
            "--rate 5 --simulate null=1 --unix-socket /s",
            ("options-conflict", "--simulate", "--unix-socket"),
        ),
        (
            "--rate 5 --unix-socket /s --source-address 127.0.0.2",
            ("option-not-applicable", "--source-address", "--unix-socket"),
        ),
        ("--rate 5 --cert c", ("option-missing", "--cert", "--key")),
        ("--rate 5 --key c", ("option-missing", "--key", "--cert")),
        ("--rate 5 --insecure --cacert c", ("options-conflict", "--insecure", "--cacert")),
        (
            "--rate 5 --prompt-form ids",
            ("protocol-unsupported", "--prompt-form ids", "--endpoint-type openai-completions"),
        ),
        ("--rate 5 --workers 3 --pin 0,1", ("options-conflict", "--workers 3", "--pin with 2 CPUs")),
        ("--rate 5 --num-prefixes 3", ("option-missing", "--num-prefixes", "--prefix-len")),
        ("--rate 5 --prefix-share 0.5", ("option-missing", "--prefix-share", "--prefix-len")),
        (
            "--rate 5 --prefix-len 5 --prefix-share 1.5",
            ("share-invalid", "--prefix-share '1.5'", "0 to 1", "0.8", "80%"),
        ),
        ("--rate 5 --image 0x5", ("image-invalid", "--image '0x5'")),
        ("--rate 5 --image 5x5 --backend openai", ("protocol-unsupported", "--image", "--endpoint-type openai-chat")),
        ("--rate 5 --image 5x5 --prompt-form text", ("option-not-applicable", "--image", "--prompt-form words")),
        ("--rate 5 --workload conversation --isl 5", ("option-not-applicable", "--isl", "--workload conversation")),
        ("--rate 5 --counting B --tokenizer none", ("options-conflict", "--counting B", "reference tokenizer")),
        ("--rate 5 --ui live --disable-tqdm", ("options-conflict", "--ui", "--disable-tqdm")),
        ("--rate 5 --goodput ttft:1 ttft:2", ("option-repeated", "--goodput", "'ttft'")),
        ("--rate 5 --gpus 0", ("count-invalid", "--gpus '0'", "above 0")),
        ("--rate 5 --price-per-hour -3", ("number-invalid", "--price-per-hour '-3'", "above 0")),
        ("--rate 5 --metadata a=1 a=2", ("option-repeated", "--metadata", "'a'")),
        ("--rate 5 --simulate null=true null=true", ("option-repeated", "--simulate", "'null'")),
        ("--rate 5 --backend tgi-native", ("choice-unknown", "'tgi-native'", "openai-chat, openai-completions")),
        ("--rate 5 --arrival tracy", ("choice-unknown", "--arrival 'tracy'", "poisson")),
        ("--rate 5 --arrival trace", ("option-not-applicable", "--arrival trace", "add --workload")),
        (
            "--workload azure --dataset-path f --dataset-class a",
            ("option-not-applicable", "--dataset-class", "--workload azure", "no classes"),
        ),
        *(
            (f"--rate 5 --workload sharegpt --dataset-path f --dataset-lengths {text}", refusal)
            for text, refusal in (
                ("5", ("value-invalid", "'5'", "min-input=TOKENS", "max-total=TOKENS")),
                ("min-input=4,min-input=5", ("value-invalid", "'min-input=5'", "each once")),
                ("max-input=", ("value-invalid", "'max-input='")),
                ("max-input=0", ("count-invalid", "above 0")),
                ("min-total=9,max-total=8", ("value-invalid", "min-total 9 above max-total 8")),
                ("max-input=8 --turns all", ("option-not-applicable", "--dataset-lengths", "without --turns")),
                ("max-input=8 --tokenizer none", ("option-not-applicable", "--tokenizer none counts none")),
            )
        ),
        ("--rate 5 --dataset-lengths max-input=8", ("option-not-applicable", "--dataset-lengths", "sharegpt")),
        ("--rate 5 --prompt a --dataset-lengths max-input=8", ("option-not-applicable", "--dataset-lengths")),
        ("--rate 5 --dataset-class a", ("option-not-applicable", "--dataset-class", "--workload custom", "csv")),
        (
            "--rate 5 --workload batch --dataset-path f --dataset-class a",
            ("option-not-applicable", "--workload custom", "csv"),
        ),
        (
            "--workload azure --dataset-path f --trace-speed 1e12",
            ("number-invalid", "--trace-speed", "0.001 to 1000000"),
        ),
        (
            "--workload azure --dataset-path f --trace-speed 1e-300",
            ("number-invalid", "--trace-speed", "0.001 to 1000000"),
        ),
        (
            "--workload azure --dataset-path f --rate 5 --arrival trace",
            ("option-not-applicable", "--arrival trace", "no --rate"),
        ),
        ("--rate 5 --declare sut.model.nam=m", ("declaration-invalid", "sut.model.nam", "sut.model.name?")),
        ("--rate 5 --declare prefix_cache.enabled=perhaps", ("declaration-invalid", "'perhaps'", "yes, no")),
        ("--rate 5 --workload moonpie", ("choice-unknown", "--workload 'moonpie'", "synthetic-uniform")),
        ("--rate 5 --output=", ("option-value-missing", "--output ''")),
    ],
)
def test_contradictions_and_wrong_values_are_one_sentence(arguments, words):
    assert says(refused(*arguments.split()), *words)


def test_a_trace_has_its_own_arrivals_by_whatever_name():
    plain = ("--workload", "azure", "--dataset-path", "f.csv")
    assert settings_of(*plain, "--arrival", "trace") == settings_of(*plain)


def test_a_config_from_the_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"rate = 5\nduration = '3s'\n")))
    settings, _ = settings_of("--config", "-")
    assert (settings.load.rate, settings.load.duration) == (5.0, 3.0)


def test_without_a_bound_a_run_lasts_a_minute():
    assert settings_of("--rate", "5")[0].load.duration == 60.0
    assert settings_of("--concurrency", "5")[0].load.duration == 60.0
    assert settings_of("--rate", "5", "-n", "10")[0].load.duration is None


def test_a_unix_socket_is_a_target():
    settings, _ = settings_of(
        "--rate", "5", "--unix-socket", "/run/x.sock", environment={"OPENAI_BASE_URL": "http://e"}
    )
    assert settings.target.urls == ("http://localhost",)


def test_some_options_of_the_simulated_engine_may_be_given_again():
    words = ("fault=reset:0.1", "fault=stall:0.2", "null=true", "log=a", "log=b", "route-by=a", "route-by=b")
    settings, _ = settings_of("--rate", "5", "--simulate", *words)
    assert settings.target.simulate == tuple(tuple(word.split("=")) for word in words)


def test_zero_is_a_seed():
    assert settings_of("--rate", "5", "--seed", "0")[0].client.seed == 0


@pytest.mark.parametrize(
    ("option", "words"),
    [("--api-key-file", ("file-unreadable", "a device")), ("--rate-series", ("rate-curve-invalid", "a device"))],
)
def test_a_device_without_end_is_refused_as_a_file(
    option: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    from fastllmload.cli.main import main

    assert main(["run", option, "/dev/zero", "--duration", "1", "-o", "/nonexistent/run"]) == 2
    said = capsys.readouterr().err
    assert says(said, *words) and len(said.splitlines()) == 1


def test_nested_brackets_are_refused_as_a_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fastllmload.cli.main import main

    (tmp_path / "deep.toml").write_text("a = " + "[" * 5000 + "]" * 5000)
    assert main(["run", "--config", str(tmp_path / "deep.toml")]) == 2
    said = capsys.readouterr().err
    assert says(said, "config-invalid", "not TOML", "nested too deeply") and len(said.splitlines()) == 1
