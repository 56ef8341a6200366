"""A record of what the tasks of a kit have given to files, tables and other systems."""

from collections.abc import Sequence

from grete.api.sinks.sink import EarlySink, Entry, Owner, Released, Sink
from grete.errors import ConfigError, OutputRefused
from grete.execution.sinks.sink_targets import MakeSinks, SinkOutputs

Application = tuple[str, int]  # a checkpoint, or the first number of outputs that were released ahead of one


class Given:
    """The outputs that sinks have taken, in their order: each checkpoint of a task once, however often it is applied.

    It outlives the tasks' processes, as the systems do that it stands for.
    """

    def __init__(self, make: MakeSinks) -> None:
        """``make`` makes the sinks that are watched."""
        self._make = make
        self._taken: dict[tuple[str, str], dict[Application, list[bytes]]] = {}

    def sinks(self, outputs: SinkOutputs) -> dict[str, Sink]:
        """Return target → sink as ``make`` does, each of which tells what it takes."""
        sinks = self._make(outputs)
        for sink in {id(each): each for each in sinks.values()}.values():
            _Witness(sink, self)
        return sinks

    def of(self, task: str, name: str) -> list[bytes]:
        """Return the encoded values that a task, such as "export-0", has given to an output: as Entry names it."""
        return [raw for taken in self._taken.get((task, name), {}).values() for raw in taken]

    def take(self, task: str, application: Application, entries: Sequence[Entry]) -> None:
        """Note what a sink has taken at once, unless it has taken that before."""
        taken: dict[str, list[bytes]] = {}
        for name, raw in entries:
            taken.setdefault(name, []).append(raw)
        for name, values in taken.items():
            self._taken.setdefault((task, name), {}).setdefault(application, values)


class _Witness:
    """Stands in the methods of one sink. No wrapper around it: the outbox looks which class a sink is of."""

    def __init__(self, sink: Sink, given: Given) -> None:
        self._given, self._task = given, ""
        self._checkpoint_id, self._entries = 0, list[Entry]()
        self._open, self._begin, self._write, self._commit = sink.open, sink.begin, sink.write, sink.commit
        names = ["open", "begin", "write", "commit"]
        if isinstance(sink, EarlySink):
            self._release = sink.release
            names.append("release")
        if not hasattr(sink, "__dict__"):
            raise ConfigError(
                f"the kit cannot see what {sink.name} takes: {type(sink).__name__} has __slots__: leave them out, or "
                "give Kit(…, discard_sinks=True)"
            )
        for name in names:
            setattr(sink, name, getattr(self, name))

    def open(self, owner: Owner) -> int | None:
        self._task = owner.task
        return self._open(owner)

    def begin(self, checkpoint_id: int) -> bool:
        self._checkpoint_id, self._entries = checkpoint_id, []
        return self._begin(checkpoint_id)

    def write(self, entries: Sequence[Entry]) -> None:
        try:
            self._write(entries)
        except OutputRefused as error:
            self._entries += entries[: error.index]
            raise
        self._entries += entries

    def commit(self) -> None:
        self._commit()
        self._given.take(self._task, ("checkpoint", self._checkpoint_id), self._entries)

    def release(self, after: int, upto: Released, entries: Sequence[Entry]) -> None:
        self._release(after, upto, entries)
        self._given.take(self._task, ("release", after), entries)
