"""`explain`: cause and remedy of a code that a message ends with."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import NamedTuple

import click

from fastllmload.errors import InputError

UNCERTAIN = "uncertain_figure"  # the one reason that is not about a criterion


class Explanation(NamedTuple):
    code: str
    cause: str
    remedy: str


def explanations() -> dict[str, list[Explanation]]:
    """All codes by the title of their section: those of `codes.toml`, then the reasons of the certificate."""
    from fastllmload.certificate.criteria import CRITERIA
    from fastllmload.report.text.verdict import remedy

    found = {}
    for section in tomllib.loads(files("fastllmload").joinpath("codes.toml").read_text()).values():
        title = section.pop("title")
        found[title] = [Explanation(code, each["cause"], each["remedy"]) for code, each in section.items()]
    found["Reasons of the certificate"] = [
        Explanation(UNCERTAIN, "A headline figure may be off by more than a valid one.", remedy(UNCERTAIN)),
        *(Explanation(one.code, sentence(one.text.format(value="N", limit="N")), remedy(one.code)) for one in CRITERIA),
    ]
    return found


def sentence(text: str) -> str:
    """*text* with a capital letter and a full stop."""
    return f"{text[0].upper()}{text[1:].rstrip('.')}."


@click.command("explain")
@click.argument("code", metavar="CODE")
def explain(code: str) -> int:
    """Explain the CODE at the end of a message: its cause, and what to do."""
    from fastllmload.cli.options.parsers import nearest

    known = {one.code: one for section in explanations().values() for one in section}
    name = code.strip("[]")
    if name not in known:
        raise InputError(
            "choice-unknown", f"{name!r} is not a code{nearest(name, list(known))}; docs/codes.md lists all"
        )
    click.echo(f"{known[name].cause}\n{known[name].remedy}")
    return 0
