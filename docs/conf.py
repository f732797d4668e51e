"""Sphinx configuration of the documentation. `tools/check docs` builds it into build/site.

The source directory is the root of the repository, so that pages link to each other by paths that also work there.
"""

import re

from pygments.lexers import JsonLexer, TextLexer

project = "fastllmload"
copyright = "the fastllmload authors"
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "bench/README.md"]
exclude_patterns = [".venv*", "build"]
myst_heading_anchors = 4
nitpicky = True
smartquotes_action = "qe"  # quotes and dots; two hyphens begin an option

html_theme = "furo"
html_title = "fastllmload"
html_additional_pages = {"index": "home.html"}
html_copy_source = False
html_show_sphinx = False
templates_path = ["templates"]

CHAPTERS = ("docs/procedures/README", "docs/decisions/README")


def with_contents(app: object, name: str, source: list[str]) -> None:
    """Append a table of contents to the first page of a chapter: the pages that it links to, in its order. The directive is
    not in the file because a repository browser would show it.
    """
    if name in CHAPTERS:
        pages = dict.fromkeys(re.findall(r"\]\(([\w-]+)\.md\)", source[0]))
        source[0] += "\n```{toctree}\n:hidden:\n\n" + "\n".join(pages) + "\n```\n"


def setup(app: object) -> dict[str, bool]:
    app.connect("source-read", with_contents)  # type: ignore[attr-defined]
    for name, lexer in {"jsonl": JsonLexer, "csv": TextLexer}.items():  # of data sets, which pygments does not know
        app.add_lexer(name, lexer)  # type: ignore[attr-defined]
    return {"parallel_read_safe": True}
