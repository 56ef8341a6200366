"""The public names: all of `grete`, and what the packages beside it hand on."""

import ast
import importlib
import inspect
import itertools
from collections.abc import Iterator

from docs.hooks.markdown import code, summary, table

_MORE = {  # beside `grete`: what a module offers, and what for
    "grete.testing": ("Kit",),
    "grete.testing.strategies": ("feeds", "scripts"),
    "grete.spark": ("register",),
}
WHOLE = ("grete.testing.contracts",)  # modules whose docstring says how to use them


def part() -> str:
    """Return the index of the public names and a section for each. Raises ValueError for an undocumented one."""
    names = [*((name, "grete") for name in importlib.import_module("grete").__all__)]
    names += [(name, module) for module, each in _MORE.items() for name in each]
    missing = [each for name, module in names for each in undocumented(name, module)]
    if missing:
        raise ValueError(f"public, and without a docstring: {', '.join(missing)}")
    rows = [(f"[`{name}`][{module}.{name}]", code(module), summary(said(name, module))) for name, module in names]
    return "\n\n".join(
        [table(("name", "import from", "what it is"), rows), *(f"::: {m}.{n}" for n, m in names), *map(_module, WHOLE)]
    )


def _module(name: str) -> str:
    """Return the section of a module, without its members."""
    return f"::: {name}\n    options:\n      members: false"


def found(name: str, module: str) -> object:
    """Return the object of a public name."""
    return getattr(importlib.import_module(module), name)


def said(name: str, module: str) -> str | None:
    """Return the docstring of a public name: of a value, such as a serde, the text below its assignment."""
    each = found(name, module)
    if inspect.isclass(each) or inspect.isfunction(each):
        return each.__doc__
    origin = next(
        node
        for statement in _body(module)  # below TYPE_CHECKING, too
        for node in ast.walk(statement)
        if isinstance(node, ast.ImportFrom) and name in [a.name for a in node.names]
    )
    body = _body(origin.module or "")
    for node, below in itertools.pairwise(body):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        named = any(isinstance(target, ast.Name) and target.id == name for target in targets)
        if named and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            return str(below.value.value)
    return None


def _body(module: str) -> list[ast.stmt]:
    """Return the statements of a module."""
    return ast.parse(inspect.getsource(importlib.import_module(module))).body


def undocumented(name: str, module: str) -> Iterator[str]:
    """Yield the public name, and each public method and property of its class, that has no docstring of its own."""
    each = found(name, module)
    if not said(name, module):
        yield f"{module}.{name}"
    for member, value in vars(each).items() if inspect.isclass(each) else ():
        made = isinstance(value, staticmethod | classmethod | property) or inspect.isfunction(value)
        if made and not member.startswith("_") and not value.__doc__:
            yield f"{module}.{name}.{member}"
