"""A commit's cost behind many producers, in µs of CPU time: ``python -m benchmarks.commits [PRODUCERS …]``.

One task reads a stream of that many producers, and writes to as many partitions. Nothing but markers comes: in each
interval one of each producer, then the commit, then as many markers. Each step is timed by itself, on the real core and
RocksDB; the answers of a log are given at once. A figure is the median of some intervals.
"""

import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from rich.table import Table

from benchmarks.running import say_where, show
from grete.core import actions as do
from grete.core import events as on
from grete.core.aligned.task import TaskCore
from grete.core.graph.task_topology import wire
from grete.core.graph.topology import Stage, Stream, Topology
from grete.core.limits import Limits
from grete.ports import LogRow
from grete.protocol.changelog import ChangelogHeader, ChangelogType
from grete.protocol.changelog_position import encode_changelog_position
from grete.protocol.commit import decode_commit, encode_commit
from grete.protocol.control import decode_marker, encode_marker, encode_rollback_marker
from grete.protocol.ids import RollbackEntry, TopicPartition, producer_id
from grete.stores.overlay.overlay import Overlay
from grete.stores.rocksdb.memory_use import RocksMemory
from grete.stores.rocksdb.store import RocksStore

INTERVALS, INTERVAL_MS, FIRST_MS = 30, 1_000, 1_764_000_000_000
LIMITS = Limits(INTERVAL_MS, 1 << 20, 1 << 20, 1 << 20, 1 << 30, 60_000)
STREAM = TopicPartition("job.a.words.b", 0)
T = TypeVar("T")


class Task:
    """A task behind ``producers``. ``us``: by step, the CPU time of each interval."""

    def __init__(self, producers: int, folder: Path) -> None:
        stages = Stage("a", 0, producers), Stage("b", 1, producers), Stage("c", 2, producers)
        streams = Stream(STREAM.topic, 0, 1, producers), Stream("job.b.counts.c", 1, 2, producers)
        self.wiring = wire(Topology("job", stages, streams, {0: ("in",)}), 1, 0)
        self.producers = [producer_id(0, each) for each in range(producers)]
        self.core = TaskCore(self.wiring, LIMITS, aligned=True)
        self.us: defaultdict[str, list[float]] = defaultdict(list)
        self._overlay = Overlay(
            RocksStore(folder, {1: "counts"}, RocksMemory(1 << 24)),
            (1,),
            uncommitted_state_bytes_max=1 << 20,
            read_cache_bytes_max=1 << 20,
        )
        self._changelog: list[bytes] = []
        self._offset = 0
        bounds = dict.fromkeys((STREAM, self.wiring.changelog), (0, 0))
        self._tell("start", on.Start(0, bytes(16), "here", 1, 0, None, bounds))
        for each in self.producers:
            history = (RollbackEntry(1, 0),)
            marker = encode_rollback_marker(each, 1, 0, 1, self.wiring.fingerprint, history)
            self._tell("start", self._messages([marker]))
        self.interval(0)
        self.us.clear()

    def interval(self, number: int) -> None:
        """Let one marker of each producer come, and all that follows."""
        checkpoint_id = FIRST_MS + number * INTERVAL_MS
        markers = [encode_marker(each, 1, checkpoint_id, 1, at_end=False) for each in self.producers]
        self._timed("decode of markers", lambda: [decode_marker(each) for each in markers])
        self._tell("core takes markers", self._messages(markers))
        assert self.core.inputs.position[STREAM] == self._offset
        commit = self.core.commits.committed
        assert commit is not None
        assert commit.checkpoint_id == checkpoint_id
        header = ChangelogHeader(ChangelogType.COMMIT, commit.generation, 1, 0)
        message = self._timed("encode_commit", lambda: encode_commit(header, commit))
        self._timed("decode_commit", lambda: decode_commit(message))
        self._timed("invariants", self.core.check_invariants)
        self.us["bytes of the commit"].append(len(message))

    def _timed(self, step: str, call: Callable[[], T]) -> T:
        begun = time.process_time_ns()
        result = call()
        self.us[step].append((time.process_time_ns() - begun) / 1_000)
        return result

    def _messages(self, values: Sequence[bytes]) -> on.Messages:
        begin, self._offset = self._offset, self._offset + len(values)
        rows = [LogRow(begin + at, FIRST_MS, FIRST_MS, None, value, None) for at, value in enumerate(values)]
        return on.Messages(STREAM, rows)

    def _tell(self, step: str, event: on.Event) -> None:
        for action in self._timed(step, lambda: self.core.step(event)):
            self._perform(action)
        if self.core.sender.token > self.core.sender.acked:
            self._tell("core takes deliveries", on.Acked(self.core.sender.token))

    def _perform(self, action: do.Action) -> None:
        match action:
            case do.ReadChangelog(begin):
                for offset, value in enumerate(self._changelog[begin:], begin):
                    self._tell("start", on.ChangelogRow(offset, FIRST_MS, value))
                self._tell("start", on.ChangelogEnd(len(self._changelog)))
            case do.FlushOutputs():
                self._tell("core closes", on.OutputFrames(()))
            case do.Freeze():
                self._overlay.freeze()
            case do.WriteData():
                self._tell("core and encode_commit", on.DataWritten(0, 0, b"", round_done=False, more=False))
            case do.AppendChangelog(value):
                self._changelog.append(value)
                appended = on.ChangelogAppended(len(self._changelog) - 1, FIRST_MS, 0, fenced=False)
                self._tell("core verifies", appended)
            case do.ApplyFrozen(position):
                encoded = encode_changelog_position(position)
                self._timed("apply to RocksDB", lambda: self._overlay.apply_chunk(encoded))
                self._tell("core marks", on.Applied())
            case _:
                pass


def measure(producers: int) -> dict[str, float]:
    """Return the median of each step behind that many producers."""
    with tempfile.TemporaryDirectory() as folder:
        task = Task(producers, Path(folder))
        for number in range(1, 1 + INTERVALS):
            task.interval(number)
    return {step: statistics.median(each) for step, each in task.us.items()}


def main(counts: Sequence[int]) -> None:
    """Print the table."""
    found = {count: measure(count) for count in counts}
    table = Table(title="µs of CPU time, by producers")
    for column in ("", *map(str, counts)):
        table.add_column(column, justify="right" if column else "left")
    for step in found[counts[0]]:
        table.add_row(step, *(f"{found[count][step]:,.0f}" for count in counts))
    say_where("msgspec", "fastavro", "rocksdict")
    show(table)


if __name__ == "__main__":
    main([int(each) for each in sys.argv[1:]] or [1, 8, 32, 128, 256, 1_024])
