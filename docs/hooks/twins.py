"""A Markdown twin of each page, and llms.txt, which lists them: the site for programs that read.

The twin of a page has the page's path in the repository's docs: guides/windows.md for guides/windows/.
"""

import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from docs.hooks import public_api
from docs.hooks.markdown import code, one_line

LIST = "llms.txt"
DEFAULT_MAX = 40  # characters of a default; a longer one is an object that its source writes in fewer
OPTIONAL = ("Evidence", "Project")  # tabs that a reader of the list may leave out: llmstxt.org
_DIRECTIVE = re.compile(r"^::: ([\w.]+)\.(\w+)(?:\n {4}.*)*$", re.MULTILINE)
_REFERENCE = re.compile(r"\[(`[^`]+`)\]\[[\w.]+\]")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_FENCED = re.compile(r"^(```|~~~).*?^\1$", re.MULTILINE | re.DOTALL)
_PLACE = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z_])|~")  # of a type: its module, and the mark of a variable


def twin(markdown: str) -> str:
    """Return the text of a twin: a page's, with the public API as signatures and docstrings."""
    return _REFERENCE.sub(r"\1", _DIRECTIVE.sub(lambda found: _of_name(found[1], found[2]), markdown)) + "\n"


def write(site: Path, description: str, nav: list[Any], pages: Mapping[str, str]) -> None:
    """Write the twins of all pages (path → Markdown) into the folder of the site, and the list of them."""
    twins = {page: twin(markdown) for page, markdown in pages.items()}
    for page, text in twins.items():
        path = site / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    tabs = {name: _pages(entries) for tab in nav for name, entries in tab.items()}
    tabs |= {"Optional": [page for name in OPTIONAL for page in tabs.pop(name)]}
    lines = ["# Grete", "", f"> {description}"]
    for name, entries in tabs.items():
        lines += ["", f"## {name}", ""]
        lines += [f"- [{_title(twins[page])}]({page}): {_about(twins[page])}" for page in entries]
    (site / LIST).write_text("\n".join(lines) + "\n", "utf-8")


def _pages(entries: Any) -> list[str]:
    """Return the pages of a part of the navigation, in its order."""
    if isinstance(entries, str):
        return [entries]
    if isinstance(entries, dict):
        entries = list(entries.values())
    return [page for entry in entries for page in _pages(entry)]


def _title(text: str) -> str:
    """Return the title of a page."""
    return next(line.removeprefix("# ") for line in text.splitlines() if line.startswith("# "))


def _about(text: str) -> str:
    """Return the first sentence of a page; its title where it begins with a table or code."""
    prose = (
        each for each in _FENCED.sub("", text).split("\n\n") if each.strip() and each.lstrip("\n")[0] not in "#|<!-*>: "
    )
    first = _LINK.sub(r"\1", one_line(next(prose, "") or _title(text)))
    return re.split(r"(?<=[.:]) (?=[A-Z`])", first, maxsplit=1)[0]


def _of_name(module: str, name: str) -> str:
    """Return a section on a public name: its signature, its docstring, and those of its public members."""
    whole = f"{module}.{name}" in public_api.WHOLE
    each = importlib.import_module(f"{module}.{name}") if whole else public_api.found(name, module)
    said = each.__doc__ if whole else public_api.said(name, module)
    parts = [f"### {name}", code(f"{name}{_signature(each)}"), inspect.cleandoc(said or "")]
    if inspect.isclass(each):
        parts += _members(each)
    return "\n\n".join(filter(None, parts))


def _members(of: type) -> Iterator[str]:
    for name, value in vars(of).items():
        call = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        if name.startswith("_") or not (isinstance(call, property) or inspect.isfunction(call)):
            continue
        yield f"- {code(f'{name}{_signature(call)}')}: {one_line(inspect.getdoc(call))}"


def _signature(each: object) -> str:
    """Return the arguments of what can be called, "" of a value."""
    if not (inspect.isclass(each) or inspect.isfunction(each)):
        return ""
    try:
        whole = inspect.signature(each)
    except ValueError:  # one written in C
        return "(…)"
    short = [
        each.replace(default=...) if len(repr(each.default)) > DEFAULT_MAX else each
        for each in whole.parameters.values()
        if each.name not in ("self", "cls")
    ]
    return _PLACE.sub("", str(whole.replace(parameters=short))).replace("= Ellipsis", "= …")
