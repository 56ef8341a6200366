"""Variables that outlive a record and are in no store: who they are, and which writes to them matter."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from types import FunctionType, ModuleType
from typing import NamedTuple

from grete.execution.deterministic.lint.scope import UNKNOWN, Code

MUTATORS = (
    {"append", "add", "update", "extend", "insert", "setdefault", "appendleft", "extendleft", "sort", "reverse"}
    | {"rotate", "move_to_end", "subtract", "put", "put_nowait", "send", "push", "set", "cache_clear"}
    | {"intersection_update", "difference_update", "symmetric_difference_update"}
)
REMOVERS = {"pop", "popleft", "popitem", "remove", "discard", "clear"}
MUTABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.Call)


class StateKey(NamedTuple):
    """A variable that outlives a record. ``name``: as a person would say it."""

    kind: str
    name: str


class WriteEffect(Enum):
    """The effect of a write on later records."""

    STATE = "they may see what this record has left"
    NOTHING = "they would make the same of it, or it takes away what they would make again"


@dataclass(frozen=True)
class StateWrite:
    """A write to such a variable."""

    key: StateKey
    line: int
    effect: WriteEffect


def is_ours(value: object) -> bool:
    """Tell whether an object is of the framework: a topic, a store, an output."""
    return type(value).__module__.partition(".")[0] == "grete"


def is_declared(code: Code, attribute: str) -> bool:
    """Tell whether an attribute of ``self`` is declared with the framework: a store, an output, its context."""
    return is_ours(code.resolve(ast.Attribute(ast.Name(code.myself), attribute)))


def key_of(code: Code, node: ast.expr, depth: int = 8) -> StateKey | None:
    """Return the variable that an expression is, or is a part of, if it outlives a record."""
    if depth == 0:
        return None
    match node:
        case ast.Subscript(value=value):
            return key_of(code, value, depth - 1)
        case ast.Name(id=name):
            return _key_of_name(code, name, depth)
        case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name == code.myself and name:
            member = code.resolve(node)
            if not code.lives or isinstance(member, FunctionType) or is_declared(code, attribute):
                return None
            return StateKey("attribute", attribute)
        case ast.Attribute(value=value, attr=attribute):
            base = code.resolve(value)
            if isinstance(base, type | FunctionType):
                own = (base.__module__ or "").partition(".")[0] == code.source.module.__name__.partition(".")[0]
                return StateKey("attribute", attribute) if own and not callable(code.resolve(node)) else None
            return None if isinstance(base, ModuleType) else key_of(code, value, depth - 1)
        case _:
            return None


def _key_of_name(code: Code, name: str, depth: int) -> StateKey | None:
    if name == code.myself:
        return None
    if name in code.names.variables:
        if (alias := code.alias(name)) is not None:
            return key_of(code, alias, depth - 1)
        return StateKey("default argument", name) if name in mutable_defaults(code) else None
    if name in code.cells:
        return StateKey("variable of a closure", name)
    value = code.resolve(ast.Name(name))
    if name in code.names.shared:
        return StateKey("variable of the module", name)
    if (
        value is UNKNOWN
        or isinstance(value, ModuleType | type)
        or callable(value)
        or name not in vars(code.source.module)
    ):
        return None
    return StateKey("variable of the module", name)


def mutable_defaults(code: Code) -> set[str]:
    """Return the arguments whose default is one object for all calls."""
    if isinstance(code.node, ast.expr) and not isinstance(code.node, ast.Lambda):
        return set()
    arguments = code.node.args
    places = arguments.posonlyargs + arguments.args
    pairs = [
        *zip(places[len(places) - len(arguments.defaults) :], arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    return {argument.arg for argument, default in pairs if isinstance(default, MUTABLE)}


def effect_of_item(code: Code, target: ast.Subscript, value: ast.expr) -> WriteEffect:
    """Return the finding about ``target = value``: none, if the value is computed from the key alone, as in a cache."""
    made_of = set(_depends(code, value))
    return WriteEffect.NOTHING if made_of and made_of <= set(_depends(code, target.slice)) else WriteEffect.STATE


def is_constant(code: Code, value: ast.expr) -> bool:
    """Tell whether a value is made of nothing that a record or an earlier one brings."""
    return not isinstance(value, ast.Constant) and not any(_depends(code, value))


def _depends(code: Code, node: ast.AST, depth: int = 8) -> Iterator[str]:
    """Yield the variables of the call, and the parts of them, that an expression is computed from."""
    match node:
        case ast.Call(func=ast.Attribute(value=value), args=args, keywords=keywords) if depth:
            for part in (value, *args, *(keyword.value for keyword in keywords)):
                yield from _depends(code, part, depth)
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(id=name)) if depth:
            values = code.names.assigned.get(name, []) if isinstance(node, ast.Name) else []
            if len(values) == 1:
                yield from _depends(code, values[0], depth - 1)
            elif name == code.myself or key_of(code, ast.Name(name)) or name in code.names.variables:
                yield ast.unparse(node)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _depends(code, child, depth)
