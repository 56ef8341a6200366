"""The reference of what a job tells: the columns of `grete checkpoints`, and each line that a worker logs."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from docs.hooks.links import ROOT
from docs.hooks.markdown import code, table
from grete.cli.commands import checkpoints
from grete.log_events import LogEvent, event_of

_LINES = (
    "A worker logs JSON, one object a line, on standard error. Each line has `level`, `event` (the text) and "
    "`timestamp`; `job` and `partition` (`worker`, its number, in a process of several partitions); `partition`, "
    "`stage` and `generation` if it is about one task; `trace_id` and `span_id` "
    "if it is about a record that has them. A line of Grete has `id`, a name that never changes; a line without it is "
    "of your code or of a library. A word in capitals in a text is a value. The table is made from "
    "[framework/log_events.py](../../framework/log_events.py) and the calls themselves."
)
_LEVELS = ("info", "warning", "error")
_VARIES = "log"  # the method that takes a level


class Event(NamedTuple):
    """A line in a log: its level, its text, the names of its fields, and the module that logs it.

    ``template``: the text as the call has it.
    """

    level: str
    text: str
    fields: tuple[str, ...]
    module: str
    template: str = ""

    @property
    def known(self) -> LogEvent:
        """Its entry in framework/log_events.py."""
        found = event_of(self.template)
        assert found is not None, f"{self.module}: framework/log_events.py does not know {self.template!r}"
        return found


def part() -> str:
    """Return the two tables."""
    columns = ", ".join(code(name) for name in _columns())
    rows = [
        (
            code(each.known.name),
            each.level,
            each.text,
            ", ".join(map(code, each.fields)),
            each.known.when,
            each.known.remedy,
        )
        for each in events()
    ]
    return "\n\n".join(
        [
            "## The last commit of each task",
            f"`grete checkpoints JOB` prints a row for each task: {columns}.",
            "## Log lines",
            _LINES,
            table(("id", "level", "text (`event`)", "fields", "when", "what to do"), rows),
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
        if not (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in (*_LEVELS, _VARIES)
        ):
            continue
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "logger" and node.args:
            given = [keyword.value for keyword in node.keywords if keyword.arg == "extra"]
            names = [key.value for each in given for key in _keys(each) if isinstance(key, ast.Constant)]
            level, (first, *values) = node.func.attr, node.args
            if level == _VARIES:
                level, (first, *values) = "varies", values
            for template, text in _texts(first, [_name(each) for each in values]):
                yield Event(level, text, tuple(map(str, names)), str(path.relative_to(ROOT)), template)


def _texts(text: ast.expr, names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (text as written, text as shown) of what may be logged: each text that a condition chooses.

    A text that is shown has the names of its values in capitals.
    """
    if isinstance(text, ast.IfExp):
        yield from (*_texts(text.body, names), *_texts(text.orelse, names))
    else:
        values = iter(names)
        template = str(ast.literal_eval(text))
        yield template, re.sub(r"%(?:[sd]|\.0f)", lambda _: next(values), template)


def _name(value: ast.expr) -> str:
    """Return a name for a value of a text: ``TOPIC`` for ``partition.topic``, ``ERROR`` for ``str(error)``."""
    if isinstance(value, ast.Call):
        return _name(value.args[0] if value.args else value.func)
    return (value.attr if isinstance(value, ast.Attribute) else ast.unparse(value)).strip("_").upper()


def _keys(node: ast.expr) -> list[ast.expr]:
    """Return the keys of the dictionaries in an expression."""
    return [key for each in ast.walk(node) if isinstance(each, ast.Dict) for key in each.keys if key is not None]
