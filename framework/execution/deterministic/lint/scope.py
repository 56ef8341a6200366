"""Resolution of names in a piece of code: objects of the imported program, or variables of the call."""

import ast
import builtins
import functools
import importlib
import inspect
import sys
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Final

from grete.execution.deterministic.lint.source import Function, ModuleSource, Sources

UNKNOWN: Final = object()
SETS = ("set", "Set", "frozenset", "FrozenSet", "AbstractSet", "MutableSet")
SET_METHODS = {"union", "intersection", "difference", "symmetric_difference"}


@dataclass(eq=False)
class BoundNames:
    """The names that a piece of code binds, and what it binds them to."""

    assigned: dict[str, list[ast.expr]] = field(default_factory=lambda: defaultdict(list))
    annotated: dict[str, ast.expr] = field(default_factory=dict)
    imported: dict[str, object] = field(default_factory=dict)
    variables: set[str] = field(default_factory=set)  # of the call
    shared: set[str] = field(default_factory=set)  # declared global, or nonlocal and of a function around it

    def declare(self, node: ast.AST, code: ast.AST, cells: Collection[str]) -> None:
        """Take what a node of the code binds; ``cells``: variables of functions around it."""
        match node:
            case ast.Global(names=names):
                self.shared |= set(names)
            case ast.Nonlocal(names=names):
                self.shared |= {name for name in names if name in cells}
            case ast.arg(arg=name, annotation=annotation):
                self.variables.add(name)
                if annotation is not None:
                    self.annotated[name] = annotation
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                self.variables.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) if node is not code:
                self.variables.add(name)
            case ast.ExceptHandler(name=str(name)):
                self.variables.add(name)
            case ast.Import(names=names):
                for alias in names:
                    self.imported[alias.asname or alias.name.partition(".")[0]] = _module(
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
            case ast.ImportFrom(module=str(module), names=names, level=0):
                for alias in names:
                    self.imported[alias.asname or alias.name] = getattr(_module(module), alias.name, UNKNOWN)
            case _:
                pass
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.NamedExpr(target=ast.Name(id=name), value=value)
            ):
                self.assigned[name].append(value)
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                self.annotated[name] = annotation
                if value is not None:
                    self.assigned[name].append(value)
            case _:
                pass


@dataclass(eq=False)
class Code:
    """A function, or the value of a variable, with all that is needed to know its names.

    ``owner``: the class whose instance ``self`` is. ``lives``: that instance outlives a record. ``runs``: for records,
    not only at the start of a task or at import.
    """

    source: ModuleSource
    node: Function | ast.expr
    owner: type | None = None
    lives: bool = False
    runs: bool = True
    cells: dict[str, object] = field(default_factory=dict)  # variables of functions around it
    entry: bool = False  # the framework calls it
    cached: bool = False  # what it returns is kept
    names: BoundNames = field(default_factory=BoundNames)
    myself: str = ""  # the name of ``self``

    def __post_init__(self) -> None:
        if isinstance(self.node, Function):
            first = self.node.args.posonlyargs + self.node.args.args
            if self.owner is not None and first and not isinstance(self.node, ast.Lambda):
                self.myself = first[0].arg
        for node in ast.walk(self.node):
            self.names.declare(node, self.node, self.cells)
        self.names.variables -= self.names.shared

    def alias(self, name: str) -> ast.expr | None:
        """Return the name or attribute that a variable of the call stands for, if it is assigned once."""
        values = self.names.assigned.get(name, [])
        return values[0] if len(values) == 1 and isinstance(values[0], ast.Name | ast.Attribute) else None

    def resolve(self, node: ast.expr) -> object:
        """Return the object that an expression is, as far as that is known without running it; else UNKNOWN."""
        match node:
            case ast.Name(id=name):
                return self._named(name)
            case ast.Call(func=ast.Name(id="type"), args=[ast.Name(id=name)]) if name == self.myself and name:
                return self.owner
            case ast.Attribute(value=value, attr=attribute):
                return self._attribute(value, attribute)
            case _:
                return UNKNOWN

    def _named(self, name: str) -> object:
        if name in self.names.imported:
            return self.names.imported[name]
        if name in self.names.variables:
            alias = self.alias(name)
            return (
                UNKNOWN if alias is None or (isinstance(alias, ast.Name) and alias.id == name) else self.resolve(alias)
            )
        if name in self.cells:
            return self.cells[name]
        return vars(self.source.module).get(name, vars(builtins).get(name, UNKNOWN))

    def _attribute(self, value: ast.expr, attribute: str) -> object:
        if isinstance(value, ast.Name) and value.id == self.myself and self.myself:
            base: object = self.owner
        else:
            base = self.resolve(value)
        if base is UNKNOWN:
            made = self.made_by(value)
            return UNKNOWN if made is None else _member(made, attribute)
        if isinstance(base, ModuleType | type):
            return _member(base, attribute)
        if isinstance(base, FunctionType):
            return UNKNOWN
        return _member(type(base), attribute)

    def made_by(self, node: ast.expr) -> type | None:
        """Return the class of what an expression makes: of a call of a class, or of a variable that holds one."""
        if isinstance(node, ast.Call):
            made = self.resolve(node.func)
            return made if isinstance(made, type) else None
        if isinstance(node, ast.Name) and node.id in self.names.variables:
            return next((made for each in self.names.assigned.get(node.id, []) if (made := self._made(each))), None)
        return None

    def _made(self, node: ast.expr) -> type | None:
        return self.made_by(node) if isinstance(node, ast.Call) else None

    def is_set(self, node: ast.expr | None, depth: int = 0) -> bool:
        """Tell whether an expression is a set, whose order is by hashes."""
        if node is None or depth > DEPTH:
            return False
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor(), right=right):
                return any(self.is_set(side, depth + 1) or _is_view(side) for side in (left, right))
            case ast.IfExp(body=body, orelse=other):
                return self.is_set(body, depth + 1) or self.is_set(other, depth + 1)
            case ast.Call(func=ast.Attribute(value=value, attr=method)) if method in SET_METHODS:
                return self.is_set(value, depth + 1)
            case ast.Call(func=function):
                return self._returns_set(self.resolve(function))
            case ast.Name(id=name) if name in self.names.variables:
                return _is_set_hint(self.names.annotated.get(name)) or any(
                    self.is_set(each, depth + 1) for each in self.names.assigned.get(name, [])
                )
            case ast.Name() | ast.Attribute():
                return isinstance(self.resolve(node), set | frozenset)
            case _:
                return False

    def _returns_set(self, function: object) -> bool:
        if function in (set, frozenset):
            return True
        hint = getattr(function, "__annotations__", {}).get("return") if callable(function) else None
        return getattr(hint, "__origin__", hint) in (set, frozenset) or (
            isinstance(hint, str) and hint.startswith(SETS)
        )


DEPTH = 8  # of variables that stand for others: a loop ends there


def _module(name: str) -> object:
    """Return a module that code imports when it runs."""
    if name in sys.modules:
        return sys.modules[name]
    return importlib.import_module(name) if name.partition(".")[0] in sys.stdlib_module_names else UNKNOWN


def _member(owner: object, name: str) -> object:
    """Return a member of a module or class, without running a property."""
    if isinstance(owner, ModuleType):
        return vars(owner).get(name, UNKNOWN)
    found = inspect.getattr_static(owner, name, UNKNOWN)
    if isinstance(found, property):
        return found.fget
    if isinstance(found, functools.cached_property):
        return found.func
    if isinstance(found, staticmethod):
        return found.__func__
    if isinstance(found, classmethod) or type(found).__name__ in ("classmethod_descriptor", "method_descriptor"):
        return getattr(owner, name, UNKNOWN)
    return found


def _is_view(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr="keys" | "items")):
            return True
        case _:
            return False


def _is_set_hint(node: ast.expr | None) -> bool:
    match node:
        case ast.Subscript(value=value):
            return _is_set_hint(value)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in SETS
        case _:
            return False


__all__ = ["UNKNOWN", "Code", "Sources"]
