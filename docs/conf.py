"""How Sphinx builds the site from these pages: `make docs`. Nothing is fetched while it builds."""

import importlib
import inspect
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer

# The names of the device are the simulated ones here: they are typed, documented and the same everywhere.
os.environ["HEADRACE_DEVICE"] = "sim"
sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

project = "headrace"
author = "the headrace authors"
copyright = "the headrace authors"  # noqa: A001  (Sphinx's name)
release = importlib.import_module("headrace.version").__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
nitpicky = False

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_default_options = {"members": True, "member-order": "bysource", "show-inheritance": True}
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
# In an annotation, `slice` is Python's although attributes have that name, and `Outcome` may be one of two classes.
suppress_warnings = ["ref.python"]
napoleon_google_docstring = False
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"headrace {release}"
html_show_sourcelink = False
pygments_style = "friendly"
pygments_dark_style = "monokai"


def link_to_files(app: Any, document: str, source: list[str]) -> None:
    """Have links to pages that are not part of the site, such as ../CONTRIBUTING.md, lead to the files."""
    above = "../" * (document.count("/") + 1)
    source[0] = re.sub(rf"\]\({re.escape(above)}([^)#]+)(#[^)]*)?\)", rf"](path:{above}\1)", source[0])


def describe_names(app: Any, document: str, source: list[str]) -> None:
    """Have a block of names, which the pages of the reference list by module, describe each of them."""

    def describe(block: re.Match[str]) -> str:
        module, names = block[1], block[2].split()
        kinds = [kind_of(getattr(importlib.import_module(module), name)) for name in names]
        lines = [f".. auto{kind}:: {module}.{name}" for kind, name in zip(kinds, names, strict=True)]
        return "```{eval-rst}\n" + "\n".join(lines) + "\n```"

    source[0] = re.sub(
        r"^```\{names\} (\S+)\n(.*?)^```$", describe, source[0], flags=re.MULTILINE | re.DOTALL
    )


def kind_of(value: Any) -> str:
    """Return what autodoc calls an object."""
    if inspect.isclass(value):
        is_error = issubclass(value, BaseException) and not issubclass(value, Warning)
        return "exception" if is_error else "class"
    return "function" if inspect.isroutine(value) else "data"


def describe_commands(app: Any, document: str, source: list[str]) -> None:
    """Have the page of the commands show the help of each."""
    if document == "api/command":
        os.environ["COLUMNS"] = "110"
        commands = importlib.import_module("headrace.cli").make_parser(every=True).get_default("commands")
        for name, parser in commands.items():
            source[0] += f"\n## headrace {name}\n\n```output\n{parser.format_help()}```\n"


STABLE = json.loads((Path(__file__).parents[1] / "tests" / "names" / "stable.json").read_text())


def name_tier(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Begin the text of a stable name with its tier."""
    if name in STABLE:
        lines[:0] = ["*Stable.*", ""]


def skip_fields(app: Any, what: str, name: str, value: Any, skip: bool, options: Any) -> bool | None:
    """Leave out the fields of a named tuple, which the text of its class describes."""
    return (getattr(value, "__doc__", None) or "").startswith("Alias for field number") or None


COLON = "\0"


def hide_colons(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Keep napoleon from taking the words before a colon in the text of an attribute for its type."""
    if what in ("attribute", "data", "property"):
        lines[:] = [line.replace(":", COLON) for line in lines]


def show_colons(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Undo that, after napoleon."""
    lines[:] = [line.replace(COLON, ":") for line in lines]


NAVIGATION: dict[int, str] = {}


def share_navigation(app: Any, page: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Have the pages with sources share the navigation, which has none of them: to make it takes 0.25 seconds."""
    if page.startswith("_modules/"):
        make, depth = context["toctree"], page.count("/")  # the links are relative

        def make_once(**options: Any) -> str:
            if depth not in NAVIGATION:
                NAVIGATION[depth] = make(**options)
            return NAVIGATION[depth]

        context["toctree"] = make_once


def setup(app: Any) -> None:
    """Show what a snippet prints as plain text."""
    app.add_lexer("output", TextLexer)
    app.connect("source-read", link_to_files)
    app.connect("source-read", describe_names)
    app.connect("source-read", describe_commands)
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("autodoc-process-docstring", hide_colons, priority=400)
    app.connect("autodoc-process-docstring", show_colons, priority=600)
    app.connect("autodoc-process-docstring", name_tier, priority=700)
    app.connect("html-page-context", share_navigation, priority=400)  # before the theme
