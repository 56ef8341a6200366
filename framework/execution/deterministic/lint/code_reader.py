"""Reads one piece of code: what in it is suspicious, what it uses, and which variables outlive a record in it."""

import ast
import random
from types import FunctionType, ModuleType

from grete.api.store import Store
from grete.execution.deterministic.lint import names
from grete.execution.deterministic.lint.order import in_any_order, set_in_order
from grete.execution.deterministic.lint.patterns import logs, missing
from grete.execution.deterministic.lint.reading import CodeReading, Suspicion
from grete.execution.deterministic.lint.scope import UNKNOWN, Code
from grete.execution.deterministic.lint.state import (
    MUTATORS,
    REMOVERS,
    StateWrite,
    WriteEffect,
    effect_of_item,
    is_constant,
    is_declared,
    is_ours,
    key_of,
)

SORTED = "sorted(...): a set has no fixed order"
STATE = "a store: after a restart it is not as it was at the commit"


class CodeReader:
    """Reads one piece of code. ``types``: of attributes of ``self``, as its methods assign them."""

    def __init__(self, code: Code, types: dict[str, type]) -> None:
        self.code, self.types, self.found = code, types, CodeReading()
        self._errors: list[str] = []  # variables that hold any error
        self._missing: list[str] = []  # what is known to be None where the reader is

    def read(self) -> CodeReading:
        """Return the findings."""
        node = self.code.node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._all(node.body)
        else:
            self._visit(node.body if isinstance(node, ast.Lambda) else node)
        return self.found

    def _all(self, nodes: list[ast.stmt] | list[ast.expr]) -> None:
        for node in nodes:
            self._visit(node)

    def _suspect(self, node: ast.expr | ast.stmt, what: str, instead: str) -> None:
        self.found.suspicions.append(Suspicion(node.lineno, what, instead))

    def _visit(self, node: ast.AST) -> None:
        match node:
            case ast.Expr(value=ast.Call() as call):
                self._call(call, used=False)
            case ast.Call():
                self._call(node, used=True)
            case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()):
                self._reference(node)
            case ast.Assign(targets=targets, value=value):
                self._visit(value)
                for target in targets:
                    self._target(target, value, node)
            case ast.AugAssign(target=target, value=value):
                self._visit(value)
                self._target(target, None, node)
            case ast.AnnAssign(target=target, value=value):
                if value is not None:
                    self._visit(value)
                    self._target(target, value, node)
            case ast.Delete(targets=targets):
                for target in targets:
                    self._write(target, target.lineno, WriteEffect.NOTHING)
            case ast.ExceptHandler(type=kind, name=name, body=body):
                self._handler(kind, name, body)
            case ast.If(body=body, orelse=[]) if all(self._only_logs(each) for each in body):
                return  # the log sees what it looks at, and no more
            case ast.If(test=test, body=body, orelse=other):
                self._visit(test)
                self._missing.append(missing(test))
                self._all(body)
                self._missing.pop()
                self._all(other)
            case _:
                self._order(node)
                self._children(node)

    def _only_logs(self, statement: ast.stmt) -> bool:
        match statement:
            case ast.Expr(value=ast.Call(func=function)):
                return logs(function, self.code.resolve(function))
            case _:
                return False

    def _children(self, node: ast.AST) -> None:
        match node:
            case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body) | ast.ClassDef(body=body):
                self._all(body)
            case ast.arguments(defaults=defaults):
                self._all(defaults)
            case _:
                for child in ast.iter_child_nodes(node):
                    self._visit(child)

    # --- Order and texts ---

    def _order(self, node: ast.AST) -> None:
        iterated: list[ast.expr] = []
        match node:
            case ast.For(iter=iterable) | ast.Starred(value=iterable) | ast.YieldFrom(value=iterable):
                iterated = [iterable]
            case ast.ListComp(generators=generators) | ast.DictComp(generators=generators):
                iterated = [each.iter for each in generators]
            case ast.GeneratorExp(generators=generators):
                iterated = [each.iter for each in generators]
            case ast.FormattedValue(value=value):
                iterated = [value]
                self._text_of(value)
            case _:
                pass
        for iterable in iterated:
            if self.code.is_set(iterable):
                self._suspect(iterable, "the order of a set", SORTED)

    def _text_of(self, node: ast.expr) -> None:
        if isinstance(node, ast.Name) and node.id in self._errors:
            self._suspect(node, "the text of any error", "a text of your own: this one may hold addresses and paths")
        made = self.code.made_by(node)
        if made is not None and all(getattr(made, name) is getattr(object, name) for name in ("__repr__", "__str__")):
            self._suspect(node, f"the text of a {made.__name__}", "__repr__ of its own: this text holds its address")
        elif isinstance(self.code.resolve(node), FunctionType):
            self._suspect(node, "the text of a function", "its __name__: this text holds its address")

    def _handler(self, kind: ast.expr | None, name: str | None, body: list[ast.stmt]) -> None:
        any_error = kind is not None and self.code.resolve(kind) in (Exception, BaseException, OSError)
        if any_error and name is not None:
            self._errors.append(name)
        self._all(body)
        if any_error and name is not None:
            self._errors.pop()

    # --- Names ---

    def _reference(self, node: ast.Name | ast.Attribute) -> None:
        value = self.code.resolve(node)
        if (hit := self._suspicious(node, value)) is not None:
            self._suspect(node, *hit)
            return
        if (key := key_of(self.code, node)) is not None:
            self.found.reads.append((key, node.lineno))
        self._variables(node)
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id in self._errors and node.attr == "args":
                self._text_of(node.value)
            if self.code.cached and isinstance(value, Store):
                self._suspect(node, "a cache of what a store holds", "the store alone: a restart empties the cache")
            if not (isinstance(node.value, ast.Name) and node.value.id == self.code.myself):
                self._visit(node.value)
        if value is not UNKNOWN:
            self.found.calls.append((value, *self._receiver(node)))

    def _suspicious(self, node: ast.Name | ast.Attribute, value: object) -> tuple[str, str] | None:
        if value is not UNKNOWN and (hit := names.of_object(value)) is not None:
            return hit
        if isinstance(node, ast.Attribute):
            base = self.code.resolve(node.value)
            return names.of_member(base.__name__, node.attr) if isinstance(base, ModuleType) else None
        place = None if node.id in self.code.names.variables else self.code.source.imports.get(node.id)
        return None if place is None else names.of_member(*place)

    def _variables(self, node: ast.Name | ast.Attribute) -> None:
        match node:
            case ast.Name(id=name) if name not in self.code.names.variables and not is_ours(self.code.resolve(node)):
                self.found.variables.append(name)
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name == self.code.myself and name:
                if not is_declared(self.code, attribute):
                    self.found.attributes.append(attribute)
            case _:
                pass

    def _receiver(self, node: ast.expr) -> tuple[type | None, bool]:
        """Return the class of ``self`` in what is called as ``node``, and whether that object outlives a record."""
        if not isinstance(node, ast.Attribute):
            return None, False
        if isinstance(node.value, ast.Name) and node.value.id == self.code.myself and self.code.myself:
            return self.code.owner, self.code.lives
        base = self.code.resolve(node.value)
        if isinstance(base, ModuleType):
            return None, False
        if isinstance(base, type):
            return base, self.code.lives
        made = self.code.made_by(node.value) if base is UNKNOWN else type(base)
        return made, base is not UNKNOWN

    # --- Calls ---

    def _call(self, call: ast.Call, *, used: bool) -> None:
        function = self.code.resolve(call.func)
        if logs(call.func, function):
            return
        if set_in_order(self.code, call):
            self._suspect(call, "the order of a set", SORTED)
        self._library_call(call, function)
        if function in (str, repr, format) and call.args:
            self._text_of(call.args[0])
        self._state_call(call, function, used=used)
        for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
            if isinstance(argument, ast.GeneratorExp) and in_any_order(call):
                self._children(argument)
            else:
                self._visit(argument)

    def _library_call(self, call: ast.Call, function: object) -> None:
        arguments = len(call.args) + len(call.keywords)
        module, name = getattr(function, "__module__", None), getattr(function, "__name__", "")
        owner = getattr(function, "__self__", None)
        if isinstance(owner, type):
            module = owner.__module__
        needed, instead = names.ARGUMENTS.get((str(module), name), (0, ""))
        if arguments < needed:
            self._suspect(call, f"{module}.{name} with {arguments} argument{'s' * (arguments != 1)}", instead)
        if isinstance(function, FunctionType) and (changing := names.changes_a_library(function)) is not None:
            self._suspect_foreign(call, function, changing)
        match call.func:
            case ast.Attribute(value=value, attr=method) if method in names.PATH_METHODS:
                made = self.code.made_by(value) or type(self.code.resolve(value))
                if method in names.FILE_METHODS or "Path" in made.__name__:
                    self._suspect(call, f"{method}() of a file", names.OUTSIDE)
            case ast.Attribute(attr="astimezone") if not arguments:
                self._suspect(call, "astimezone() with 0 arguments", names.ZONE)
            case _:
                pass

    def _suspect_foreign(self, call: ast.Call, function: FunctionType, name: str) -> None:
        own = self.code.source.module.__name__.partition(".")[0]
        if function.__module__.partition(".")[0] not in (own, "grete") and self.code.runs:
            self._suspect(call, name, names.LIBRARY)

    def _state_call(self, call: ast.Call, function: object, *, used: bool) -> None:
        match call.func:
            case ast.Name(id="next") if call.args:
                self._moves(call.args[0], call.lineno)
            case ast.Name(id="setattr" | "getattr" as name) if len(call.args) > 1:
                self._named_attribute(call, name, call.args[0], call.args[1])
            case ast.Attribute(value=value, attr=method):
                self._method(call, value, method, used=used)
                return
            case _:
                pass
        self._visit(call.func)

    def _named_attribute(self, call: ast.Call, function: str, owner: ast.expr, attribute: ast.expr) -> None:
        named = str(attribute.value) if isinstance(attribute, ast.Constant) else ""
        key = key_of(self.code, ast.Attribute(owner, named))
        if not named and (key is not None or isinstance(self.code.resolve(owner), ModuleType)):
            self._suspect(call, f"{function}() with a computed name", names.UNREADABLE)
        elif key is not None and function == "setattr":
            self.found.writes.append(StateWrite(key, call.lineno, WriteEffect.STATE))
        elif key is not None:
            self.found.reads.append((key, call.lineno))

    def _method(self, call: ast.Call, value: ast.expr, method: str, *, used: bool) -> None:
        made = self._type_of(value)
        key = key_of(self.code, value)
        if key is not None and made is not None and issubclass(made, random.Random):
            self._moves(value, call.lineno)
        elif made is not None and isinstance(member := getattr(made, method, None), FunctionType) and key is not None:
            self.found.calls.append((member, made, True))
            self._reference_base(value)
        elif key is not None and method in MUTATORS | REMOVERS:
            self._write(value, call.lineno, WriteEffect.STATE if method in MUTATORS or used else WriteEffect.NOTHING)
            if used or method == "setdefault":
                self.found.reads.append((key, call.lineno))
            self._reference_base(value)
        else:
            self._visit(call.func)

    def _reference_base(self, value: ast.expr) -> None:
        """Look at how a variable is made, without taking that for a read of its content."""
        if isinstance(value, ast.Name | ast.Attribute):
            self._variables(value)
        elif isinstance(value, ast.Subscript):
            self._visit(value.slice)

    def _type_of(self, value: ast.expr) -> type | None:
        """Return the class of an object that a variable of the module or an attribute of ``self`` holds."""
        match value:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name == self.code.myself and name:
                if is_declared(self.code, attribute):
                    return None
                return self.types.get(attribute)
            case _:
                found = self.code.resolve(value)
                return None if found is UNKNOWN or isinstance(found, type | ModuleType) else type(found)

    def _moves(self, value: ast.expr, line: int) -> None:
        """Note that an iterator, or a generator of numbers, goes on."""
        if (key := key_of(self.code, value)) is not None:
            self.found.writes.append(StateWrite(key, line, WriteEffect.STATE))
            self.found.reads.append((key, line))
            self._reference_base(value)

    # --- Writes ---

    def _target(self, target: ast.expr, value: ast.expr | None, statement: ast.stmt) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            values = value.elts if isinstance(value, ast.Tuple | ast.List) else [None] * len(target.elts)
            for each, part in zip(target.elts, values, strict=False):
                self._target(each, part, statement)
            return
        effect = WriteEffect.STATE
        if isinstance(target, ast.Subscript):
            self._visit(target.slice)
            if value is not None:
                effect = effect_of_item(self.code, target, value)
        elif value is not None and (self._is_fresh(target, statement) or self._is_made_once(target, value)):
            effect = WriteEffect.NOTHING
        if isinstance(target, ast.Attribute | ast.Subscript) and key_of(self.code, target) is None:
            self._visit(target.value)
        elif not (isinstance(target, ast.Name) and target.id in self.code.names.variables):
            self._write(target, statement.lineno, effect)

    def _is_fresh(self, target: ast.expr, statement: ast.stmt) -> bool:
        """Tell whether each record sets this first, before it reads it: then nothing outlives the record."""
        node, key = self.code.node, key_of(self.code, target)
        at_top = isinstance(node, ast.FunctionDef) and any(each is statement for each in node.body)
        return self.code.entry and at_top and all(read != key for read, _ in self.found.reads)

    def _is_made_once(self, target: ast.expr, value: ast.expr) -> bool:
        """Tell whether this makes what is missing, out of nothing that a record brings: then it is always the same."""
        return ast.unparse(target) in self._missing and is_constant(self.code, value)

    def _write(self, target: ast.expr, line: int, effect: WriteEffect) -> None:
        if (key := key_of(self.code, target)) is not None:
            self.found.writes.append(StateWrite(key, line, effect))
            self._reference_base(target)
