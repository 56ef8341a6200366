"""The settings, from framework/settings.py: name, type, unit, default, what it does, environment variable."""

import ast
import inspect
import itertools
from typing import Literal, get_args, get_origin, get_type_hints

from docs.hooks.markdown import code, one_line
from grete.settings import GROUPS, GiB, KiB, MiB, Settings

_UNITS = {"_ms": "ms", "_bytes": "bytes", "_messages": "messages", "restarts": "restarts"}
_KINDS: dict[object, str] = {int: "integer", str: "text"}
_SIZES = ((GiB, "GiB"), (MiB, "MiB"), (KiB, "KiB"))


def part() -> str:
    """Return a section for each setting, by the tables of a settings file. Raises ValueError: one has no docstring."""
    hints, said = get_type_hints(Settings), docstrings()
    silent = [name for name in Settings.__struct_fields__ if name not in said]
    if silent:
        raise ValueError(f"framework/settings.py: no docstring below {', '.join(silent)}")
    groups = [
        "\n\n".join([f"## [{group}]", *(_section(name, hints[name], said[name]) for name in names)])
        for group, names in GROUPS.items()
    ]
    return "\n\n".join(groups)


def docstrings() -> dict[str, str]:
    """Return field → the text below it in the class."""
    (owner,) = ast.parse(inspect.getsource(Settings)).body
    assert isinstance(owner, ast.ClassDef)
    return {
        field.target.id: one_line(str(below.value.value))
        for field, below in itertools.pairwise(owner.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
    }


def _section(name: str, hint: object, said: str) -> str:
    """Return the heading of a setting, what it does, and its facts."""
    values = " or ".join(code(str(value)) for value in get_args(hint)) if get_origin(hint) is Literal else _KINDS[hint]
    measure = unit(name)
    facts = [
        f"{values}, in {measure}" if measure else values,
        f"default {_shown(getattr(Settings(), name), measure)}",
        code(f"GRETE_{name.upper()}"),
    ]
    return f"### {name}\n\n{said}\n\n{'; '.join(facts)}\n{{: .facts }}"


def unit(name: str) -> str:
    """Return the unit that the name of a setting says, empty if it has none."""
    return next((each for end, each in _UNITS.items() if name.removesuffix("_max").endswith(end)), "")


def _shown(value: object, measure: str) -> str:
    """Return a default, with the size that it is."""
    if not isinstance(value, int):
        return code(str(value)) if value else "empty"
    sizes = [f" ({value // size} {name})" for size, name in _SIZES if value % size == 0 and measure == "bytes"]
    return f"{value:,}{sizes[0] if sizes else ''}"
