"""The sinks of a task by target: a directory, a name, or the attribute of an Output, whose url may hold a secret."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from grete.api.serdes.serde import bytes_serde, encode_error, functions_of
from grete.api.sinks.external import External
from grete.api.sinks.files import Files
from grete.api.sinks.http import Http
from grete.api.sinks.sink import Entry, Owner, Sink
from grete.api.sinks.table import Table
from grete.errors import ConfigError
from grete.sinks.files import FilesSink, line_encoder
from grete.sinks.http import HttpSink
from grete.sinks.open import sql_sinks
from grete.sinks.sql import SqlSink, row_encoder

FILES, TABLE, HTTP, EXTERNAL = "files:", "table:", "http:", "external:"  # how a target begins

SinkTarget = Files[Any] | Table[Any] | Http[Any] | External[Any]
SinkOutputs = dict[str, SinkTarget]  # attribute of the task → where it goes
MakeSinks = Callable[[SinkOutputs], dict[str, Sink]]  # returns target → sink: the one place where a task gets its sinks


class DiscardSink:
    """A Sink that drops what it is given. ``name``: of the target that it replaces."""

    def __init__(self, name: str) -> None:
        """Open nothing."""
        self.name = name

    def open(self, owner: Owner) -> int | None:
        """Return None: which checkpoints were applied is not kept."""
        return None

    def begin(self, checkpoint_id: int) -> bool:
        """Take every checkpoint."""
        return True

    def write(self, entries: Sequence[Entry]) -> None:
        """Drop the entries."""

    def commit(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def sinks_of(outputs: SinkOutputs) -> dict[str, Sink]:
    """Return target → sink; nothing is opened. Raises ConfigError."""
    tables = {name: target for name, target in outputs.items() if isinstance(target, Table)}
    sinks: dict[str, Sink] = {TABLE + name: sink for name, sink in sql_sinks(tables).items()}
    for name, target in outputs.items():
        if isinstance(target, Http):
            sinks[HTTP + name] = HttpSink(name, target)
        elif isinstance(target, External):
            sinks[EXTERNAL + target.name] = target.connect()
    places: dict[str, Sink] = {}  # one sink a directory, however it is spelled: two would take each other's files
    for directory in sorted({target.directory for target in outputs.values() if isinstance(target, Files)}):
        sinks[FILES + directory] = places.setdefault(os.path.realpath(directory), FilesSink(directory))
    return sinks


def no_sinks(outputs: SinkOutputs) -> dict[str, Sink]:
    """Return target → a sink that opens and keeps nothing: for code that replays history, and only reads."""
    return {target: DiscardSink(target) for target in map(target_of, outputs, outputs.values())}


def target_of(attribute: str, output: SinkTarget) -> str:
    """Return the target of an Output."""
    if isinstance(output, Files):
        return FILES + output.directory
    if isinstance(output, External):
        return EXTERNAL + output.name
    return (TABLE if isinstance(output, Table) else HTTP) + attribute


def encoder_of(target: SinkTarget) -> Callable[[object], bytes]:
    """Return value → bytes that wait in the state. It raises SerdeError."""
    if isinstance(target, Files):
        return line_encoder(target)
    if isinstance(target, Table):
        return row_encoder(target)
    encode = functions_of(target.value)[0]
    where = f"output to {target!r}: " if isinstance(target, Http) else f"output to {target.name}: "

    def encoded(value: object) -> bytes:
        try:
            return encode(value)
        except Exception as error:
            raise encode_error(target.value, value, error, where) from error

    return encoded


def share_of(target: SinkTarget, tasks: int) -> SinkTarget:
    """Return the share of one of ``tasks`` tasks in an output: its part of a rate that is the whole job's."""
    if isinstance(target, Http) and target.per_second is not None:
        return replace(target, per_second=target.per_second / tasks)
    return target


class TargetSinks:
    """The sinks of one task, by target."""

    def __init__(self, task: str, make: MakeSinks) -> None:
        """``make`` makes the sinks; ``task`` is named in errors."""
        self.by_target: dict[str, Sink] = {}
        self._task = task
        self._make = make

    def declare(self, outputs: SinkOutputs) -> None:
        """Make the sinks of these outputs, once. Raises ConfigError for a table's url that is unusable."""
        if not self.by_target:
            self.by_target = self._make(outputs)

    @property
    def each(self) -> list[Sink]:
        """Each sink once: several tables may share one."""
        return list({id(sink): sink for sink in self.by_target.values()}.values())

    def targets_of(self, sink: Sink) -> list[str]:
        """Return the targets that a sink takes."""
        return [target for target, each in self.by_target.items() if each is sink]

    def tables_of(self, sink: Sink) -> list[str]:
        """Return the tables that a sink takes."""
        return [target for target in self.targets_of(sink) if target.startswith(TABLE)]

    @staticmethod
    def expect(sink: Sink, *, applies: bool, releases: bool) -> None:
        """Say to a database which rows of ours the state knows to be there, before it is opened."""
        if isinstance(sink, SqlSink):
            sink.expect(applies=applies, releases=releases)

    @staticmethod
    def keeps(sink: Sink) -> bool:
        """Tell whether a sink may know which checkpoints it has, and show nothing of one before its commit."""
        return not isinstance(sink, HttpSink)

    @staticmethod
    def pace_ms(sink: Sink) -> float:
        """Return in how many ms a sink may take one output more; 0: it takes as many as there are."""
        return sink.pace_ms if isinstance(sink, HttpSink) else 0.0

    @staticmethod
    def pass_over(sink: Sink) -> None:
        """Leave out an output that the sink has refused: those of a web service are numbered."""
        if isinstance(sink, HttpSink):
            sink.pass_over()

    def refuse_shared(self) -> None:
        """Raise ConfigError if two open sinks are one database: each would take the other's checkpoints for its own."""
        found: dict[tuple[Any, ...], SqlSink] = {}
        for sink in self.each:
            if isinstance(sink, SqlSink) and (first := found.setdefault(sink.place, sink)) is not sink:
                raise ConfigError(
                    f"task {self._task}: {first.name} and {sink.name} are one database, and rows of one would be "
                    "missing: declare all tables of a task in one database with the same url",
                    task=self._task,
                )

    def destinations(self, targets: Sequence[str]) -> Iterator[tuple[Sink, dict[int, str]]]:
        """Yield (sink, index in ``targets`` → attribute) for each sink of these targets. Raises ConfigError."""
        found: dict[int, tuple[Sink, dict[int, str]]] = {}
        for index, target in enumerate(targets):
            sink = self.by_target.get(target)
            if sink is None and target.startswith(FILES):  # declared when these outputs were made, and now no more
                directory = Files(target.removeprefix(FILES), bytes_serde)
                sink = self.by_target[target] = self._make({"": directory})[target]
            if sink is None:
                kind, _, name = target.partition(":")
                what = "rows" if kind == "table" else "outputs"
                raise ConfigError(
                    f"task {self._task}: committed {what} of output {name!r} are not applied yet: declare the {kind} "
                    "under this name again, until they are",
                    task=self._task,
                )
            found.setdefault(id(sink), (sink, {}))[1][index] = target.partition(":")[2]
        yield from found.values()
