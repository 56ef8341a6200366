"""The reference of what a job tells: the columns of `grete checkpoints`, and each line that a worker logs."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from docs.hooks.links import ROOT
from docs.hooks.markdown import code, table
from framework.cli.commands import checkpoints

_LINES = (
    "A worker logs JSON, one object a line, on standard error: time, level, text and fields. "
    "A word in capitals in a text is a value."
)
_LEVELS = ("info", "warning", "error")


class Event(NamedTuple):
    """A line in a log: its level, its text, the names of its fields, and the module that logs it."""

    level: str
    text: str
    fields: tuple[str, ...]
    module: str


def part() -> str:
    """Return the two tables."""
    columns = ", ".join(code(name) for name in _columns())
    rows = [(each.level, each.text, ", ".join(map(code, each.fields)), code(each.module)) for each in events()]
    return "\n\n".join(
        [
            "## The last commit of each task",
            f"`grete checkpoints JOB` prints a row for each task: {columns}.",
            "## Log lines",
            _LINES,
            table(("level", "text", "fields", "module"), rows),
        ]
    )


def _columns() -> list[str]:
    """Return the columns of the table that `grete checkpoints` prints."""
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(checkpoints))) if isinstance(node, ast.Call)]
    (made,) = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Table"]
    return [str(each.value) for each in made.args if isinstance(each, ast.Constant)]


def events() -> list[Event]:
    """Return each call of a logger in the framework, in the order of module and line."""
    return [each for path in sorted((ROOT / "framework").rglob("*.py")) for each in _of_module(path)]


def _of_module(path: Path) -> Iterator[Event]:
    """Yield the calls of ``logger`` in a module."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LEVELS):
            continue
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "logger" and node.args:
            given = [keyword.value for keyword in node.keywords if keyword.arg == "extra"]
            names = [key.value for each in given for key in _keys(each) if isinstance(key, ast.Constant)]
            for text in _texts(node.args[0], [_name(each) for each in node.args[1:]]):
                yield Event(node.func.attr, text, tuple(map(str, names)), str(path.relative_to(ROOT)))


def _texts(text: ast.expr, names: list[str]) -> Iterator[str]:
    """Yield what may be logged: each text that a condition chooses, with the names of its values in capitals."""
    if isinstance(text, ast.IfExp):
        yield from (*_texts(text.body, names), *_texts(text.orelse, names))
    else:
        values = iter(names)
        yield re.sub("%[sd]", lambda _: next(values), str(ast.literal_eval(text)))


def _name(value: ast.expr) -> str:
    """Return a name for a value of a text: ``TOPIC`` for ``partition.topic``, ``ERROR`` for ``str(error)``."""
    if isinstance(value, ast.Call):
        return _name(value.args[0] if value.args else value.func)
    return (value.attr if isinstance(value, ast.Attribute) else ast.unparse(value)).strip("_").upper()


def _keys(node: ast.expr) -> list[ast.expr]:
    """Return the keys of the dictionaries in an expression."""
    return [key for each in ast.walk(node) if isinstance(each, ast.Dict) for key in each.keys if key is not None]
