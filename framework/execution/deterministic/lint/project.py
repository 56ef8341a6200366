"""Follows a task's code through the user's project: methods, functions, values of variables."""

import ast
import inspect
from collections.abc import Iterator
from types import FunctionType
from typing import NamedTuple

from grete.api.tasks.handlers import declared_in, handlers_of
from grete.api.tasks.task import Task
from grete.execution.deterministic.lint.code_reader import STATE, CodeReader
from grete.execution.deterministic.lint.patterns import unwrapped
from grete.execution.deterministic.lint.reading import CodeReading
from grete.execution.deterministic.lint.scope import Code
from grete.execution.deterministic.lint.source import ModuleSource, Sources
from grete.execution.deterministic.lint.state import StateKey, StateWrite, WriteEffect

FOR_RECORDS = ("process", "process_batch", "on_timer", "on_window", "on_join")


class LintFinding(NamedTuple):
    """A line of a module of the project that may not be deterministic."""

    module: str
    line: int
    what: str
    instead: str


class Project:
    """The code that one task reaches."""

    def __init__(self, task: type[Task]) -> None:
        self._sources = Sources(task.__module__)
        self._waiting: list[Code] = []
        self._known: set[tuple[int, type | None, bool, bool, bool]] = set()
        self._types: dict[type, dict[str, type]] = {}
        self._findings: set[LintFinding] = set()
        self._writes: list[tuple[ModuleSource, StateWrite]] = []
        self._reads: set[StateKey] = set()
        for name in (*FOR_RECORDS, *handlers_of(task.__name__, declared_in(task)).values()):
            self._function(getattr(task, name, None), task, lives=True, runs=True, entry=True)
        self._function(task.init, task, lives=True, runs=False)

    def findings(self) -> list[LintFinding]:
        """Return the suspicions in order, but for lines that say why they are deterministic."""
        while self._waiting:
            code = self._waiting.pop()
            types = {} if code.owner is None else self._attribute_types(code.owner)
            self._take(code, CodeReader(code, types).read())
        for source, write in self._writes:
            if write.effect is WriteEffect.STATE and write.key in self._reads:
                self._add(source, write.line, f"{write.key.kind} {write.key.name} outlives a record", STATE)
        return sorted(self._findings)

    def _add(self, source: ModuleSource, line: int, what: str, instead: str) -> None:
        if not source.silenced(line):
            self._findings.add(LintFinding(source.module.__name__, line, what, instead))

    def _take(self, code: Code, reading: CodeReading) -> None:
        for suspicion in reading.suspicions:
            self._add(code.source, *suspicion)
        if code.runs:
            self._writes += [(code.source, write) for write in reading.writes]
            self._reads |= {key for key, _ in reading.reads}
        for value, owner, lives in reading.calls:
            self._called(value, owner, lives=lives, runs=code.runs)
        for name in reading.variables:
            self._variable(code.source, name)
        for attribute in reading.attributes:
            self._attribute(code.owner, attribute)

    def _called(self, value: object, owner: type | None, *, lives: bool, runs: bool) -> None:
        if isinstance(value, type):
            for method in vars(value).values() if self._sources.of(value.__module__) else ():
                self._function(method, value, lives=False, runs=runs)
            return
        called = inspect.getattr_static(type(value), "__call__", None)
        if isinstance(called, FunctionType):  # an object of the project that is called as a function
            self._function(called, type(value), lives=True, runs=runs)
        for function, cached in unwrapped(value):
            self._function(function, owner, lives=lives, runs=runs, cached=cached)

    def _function(
        self, value: object, owner: type | None, *, lives: bool, runs: bool, entry: bool = False, cached: bool = False
    ) -> None:
        if not isinstance(value, FunctionType) or (found := self._sources.function(value)) is None:
            return
        source, node = found
        cells = dict(zip(value.__code__.co_freevars, _contents(value), strict=True))
        place = owner if owner is not None and "." in value.__qualname__ else None
        self._wait(Code(source, node, place, lives, runs, cells, entry, cached))
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self._wait(Code(source, default, runs=False))

    def _wait(self, code: Code) -> None:
        known = (id(code.node), code.owner, code.lives, code.runs, code.cached)
        if known not in self._known:
            self._known.add(known)
            self._waiting.append(code)

    def _variable(self, source: ModuleSource, name: str) -> None:
        if name in source.imports:
            module, there = source.imports[name]
            if (origin := self._sources.of(module)) is not None and (origin, there) != (source, name):
                self._variable(origin, there)
        for value in source.values.get(name, ()):
            self._wait(Code(source, value, runs=False))

    def _attribute(self, owner: type | None, attribute: str) -> None:
        """Look at the value that a class gives to an attribute."""
        for each in owner.__mro__ if owner is not None else ():
            source = self._sources.of(each.__module__)
            declared = None if source is None else source.classes.get(each.__qualname__)
            if source is not None and declared is not None:
                for value in _class_values(declared, attribute):
                    self._wait(Code(source, value, runs=False))

    def _attribute_types(self, owner: type) -> dict[str, type]:
        """Return the classes of what methods assign to attributes of ``self``."""
        if owner not in self._types:
            types = self._types[owner] = {}
            for each in owner.__mro__:
                for method in vars(each).values():
                    found = self._sources.function(method) if isinstance(method, FunctionType) else None
                    if found is not None:
                        types |= _assigned_types(Code(*found, owner))
        return self._types[owner]


def _contents(function: FunctionType) -> Iterator[object]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            yield None


def _class_values(declared: ast.ClassDef, attribute: str) -> Iterator[ast.expr]:
    for statement in declared.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == attribute:
                yield value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if name == attribute:
                yield value
            case _:
                pass


def _assigned_types(code: Code) -> dict[str, type]:
    types: dict[str, type] = {}
    for node in ast.walk(code.node):
        match node:
            case (
                ast.Assign(targets=[ast.Attribute(value=ast.Name(id=name), attr=attribute)], value=value)
                | ast.AnnAssign(
                    target=ast.Attribute(value=ast.Name(id=name), attr=attribute), value=ast.expr() as value
                )
            ) if name == code.myself and (made := code.made_by(value)) is not None:
                types[attribute] = made
            case _:
                pass
    return types
