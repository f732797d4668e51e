"""`python -m fastllmload.simulator`: every option of `SimulatorOptions` on the command line."""

from __future__ import annotations

import sys
from typing import Any

import click

from fastllmload import quantities
from fastllmload.errors import FastLLMLoadError
from fastllmload.simulator.profile import SimulatorOptions, profile_names


class Milliseconds(click.types.FloatParamType):
    """A time; a plain number is in milliseconds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = quantities.duration(str(value), "ms")
        if found is None:
            self.fail(f"{value!r} is not a time; write milliseconds such as 20, or 20ms, 0.02s", param, ctx)
        return found


class Bytes(click.IntRange):
    """A size; a plain number is in bytes."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = quantities.size(str(value), plain=True)
        if found is None or found != int(found):
            self.fail(f"{value!r} is not a size; write bytes such as 250, or 250B, 1kB", param, ctx)
        return super().convert(int(found), param, ctx)


FAULT_HELP = "This share of the replies has the fault NAME, repeatable; `--list-faults` explains names and ARG."


def pairs(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    for value in values:
        if "=" not in value:
            raise click.BadParameter(f"{value!r} has no '='; write FIELD=VALUE")
    return tuple((name, text) for name, _, text in (value.partition("=") for value in values))


def list_faults(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if not asked:
        return
    from fastllmload._ext.sim.fault import CATALOGUE

    for name, (_number, default, text) in CATALOGUE.items():
        click.echo(f"{name:22} {text}" + (f"  [ARG {default}]" if 0 < default < 0xFFFFFFFF else ""))
    context.exit()


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, show_default="a free one", type=click.IntRange(0, 65535), help="Port to listen on.")
@click.option("--unix-socket", metavar="PATH", help="Listens on this socket instead of a port.")
@click.option(
    "--processes",
    default=1,
    show_default=True,
    type=click.IntRange(1, 256),
    help="Processes that share the port (SO_REUSEPORT).",
)
@click.option(
    "--profile", default="default", show_default=True, help=f"Engine: {', '.join(profile_names())}, or a .toml file."
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    callback=pairs,
    metavar="FIELD=VALUE",
    help="Replaces a field of the profile, repeatable.",
)
@click.option("--ttft-ms", type=Milliseconds(), help="Constant time to first token, without the engine model.")
@click.option("--itl-ms", type=Milliseconds(), help="Constant time between tokens, without the engine model.")
@click.option(
    "--phase",
    type=click.Choice(["spread", "lockstep"]),
    help="With constant times: tokens of each stream at instants of its own, or of all streams at once.",
)
@click.option("--null", is_flag=True, help="Answers as fast as possible.")
@click.option(
    "--model", "models", multiple=True, default=("simulated",), show_default=True,
    help="Name of the model, repeatable: all are served, as adapters of one engine.",
)  # fmt: skip
@click.option("--any-model", is_flag=True, help="Accepts every model name.")
@click.option("--api-key", envvar="FASTLLMLOAD_SIMULATOR_KEY", help="Key that requests must have.")
@click.option("--tls", is_flag=True, help="Speaks TLS, with a new certificate for localhost that signs itself.")
@click.option("--tls-cert", metavar="FILE", help="Speaks TLS with this certificate and its chain (PEM).")
@click.option("--tls-key", metavar="FILE", help="Its private key (PEM). Default: in the file of the certificate.")
@click.option("--tls-client-ca", metavar="FILE", help="Clients must show a certificate that one of these signed (PEM).")
@click.option(
    "--tls-alpn",
    default="h2,http/1.1",
    show_default=True,
    metavar="NAMES",
    help='Protocols for ALPN; a client that names only others is refused. "": ALPN is not answered.',
)
@click.option(
    "--http2-streams",
    default=128,
    show_default=True,
    type=click.IntRange(0, 100_000),
    help="Streams that an HTTP/2 connection may have at once; more are refused.",
)
@click.option(
    "--http2-window",
    default=1 << 20,
    show_default=True,
    type=Bytes(0, 2**31 - 1),
    help="Bytes of a request's body that HTTP/2 takes before it allows more; 0: none, ever.",
)
@click.option("--coalesce", default=1, show_default=True, type=click.IntRange(1, 256), help="Events per write.")
@click.option(
    "--chunk-bytes", default=250, show_default=True, type=Bytes(0, 16384), help="Bytes to which events are padded."
)
@click.option("--early-head", is_flag=True, help="Sends the response head before the first token.")
@click.option("--truth", metavar="FILE", help="Logs what was written when.")
@click.option(
    "--log",
    "logged",
    multiple=True,
    metavar="NAME",
    help="Header of requests that the truth log shows, or a field of their bodies as body:FIELD; repeatable.",
)
@click.option(
    "--session-token",
    metavar="NAME",
    help="Answers with a token of the session in this header, and refuses (409) any but the latest.",
)
@click.option(
    "--backends",
    default=0,
    show_default=True,
    type=click.IntRange(0, 10_000),
    help="Each answer names one of COUNT backends in --backend-header, as a router's answers do; of each process others.",
)
@click.option("--backend-header", default="x-backend", show_default=True, metavar="NAME", help="Header that names it.")
@click.option(
    "--route-by",
    "routed_by",
    multiple=True,
    metavar="NAME",
    help="Header of requests (or body:FIELD) whose hash chooses the backend, the first that a request has; repeatable.",
)
@click.option(
    "--control",
    default="all",
    show_default=True,
    type=click.Choice(["all", "vllm", "sglang", "dynamo", "tensorrt-llm", "none"]),
    help="Whose routes it has that reset caches, profile and sleep.",
)
@click.option("--fault", "faults", multiple=True, metavar="NAME:SHARE[:ARG]", help=FAULT_HELP)
@click.option(
    "--list-faults",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=list_faults,
    help="Prints the faults and exits.",
)
@click.option("--seed", default=42, show_default=True, type=click.IntRange(0, 2**63 - 1), help="Seed of all draws.")
@click.option("--cpu", type=click.IntRange(0, 4095), help="Runs on this CPU only.")
@click.option("--die-with-parent", type=int, hidden=True)
def main(**options: object) -> None:
    """Serve the OpenAI and Ollama APIs from a simulated LLM engine."""
    from fastllmload.simulator.serve import serve

    options["model"], *more = dict.fromkeys(options.pop("models"))  # type: ignore[call-overload]
    try:
        sys.exit(serve(SimulatorOptions(more_models=tuple(more), **options), announce))  # type: ignore[arg-type]
    except FastLLMLoadError as error:
        click.echo(f"fastllmload: {error}", err=True)
        sys.exit(error.exit_code)


def announce(url: str) -> None:
    click.echo(f"ready {url}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
