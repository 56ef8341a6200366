"""A standby of one task: reads its changelog, and keeps a store of its own at what is committed (R7)."""

import logging
from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

from grete.core import actions as do
from grete.core import events as on
from grete.core.changelog.damage import unreadable
from grete.core.graph.task_topology import TaskWiring
from grete.core.lifecycle import StandbyPhase
from grete.core.standby import StandbyCore
from grete.errors import ConfigError, Halted, OffsetOutOfRange, StoreCorrupted
from grete.execution.changelog.changelog_writer import apply_segment
from grete.execution.changelog.own_changelog import OwnChangelog
from grete.execution.limits import (
    LATE_MS,
    STANDBY_LOAD_BYTES,
    STANDBY_LOOK_MS,
    STANDBY_POSITION_MS,
    STANDBY_WRITE_BYTES,
)
from grete.halts import HaltCode
from grete.logs.partition_reader import READABLE_S_MAX
from grete.ports import LogReader, LogRow, StateStore, Write
from grete.protocol.changelog import decode_data
from grete.protocol.changelog_position import ChangelogPosition, decode_changelog_position, encode_changelog_position
from grete.protocol.errors import DecodeError

logger = logging.getLogger("grete")


class StandbyProgress(NamedTuple):
    """Progress of a standby. ``position``: offset of the last commit in its store, -1: none, and its checkpoint.

    ``read``, ``end``: the offset of the changelog up to which it has read, and where that was last seen to end.
    ``caught_up``: within the last STANDBY_LOOK_MS it had all that was committed. ``behind``: how many messages a task
    would read that starts now on its store, -1: it would restore, because the store has no changelog position yet.
    """

    position: int
    checkpoint_id: int
    read: int
    end: int
    caught_up: bool
    behind: int


class StandbyTask:
    """Keeps the store of a task ready. ``tick`` does one small thing, as that of a task does.

    Each committed checkpoint goes into the store as a whole, its changelog position last: one write, or, where it is
    large, loads and then the position. What is not committed stays in memory. It needs a log only to read.

    No position is written before the end that the changelog had at the beginning: a redo or restore that a kill has cut
    short may have left what comes up to there.
    """

    def __init__(
        self,
        wiring: TaskWiring,
        log: LogReader,
        store: StateStore,
        *,
        batch_bytes_max: int,
        mono_ms: Callable[[], float],
    ) -> None:
        """Read nothing yet. ``mono_ms``: a clock that only goes forward."""
        self.wiring = wiring
        self.counters: Counter[str] = Counter()
        self.trouble = ""  # why it has stopped, for a person
        self._log, self._store, self._mono_ms = log, store, mono_ms
        self._batch_bytes_max = 4 * batch_bytes_max
        self._core = StandbyCore(wiring.name, wiring.changelog)
        self._changelog = OwnChangelog(log, wiring, self._batch_bytes_max, mono_ms)
        self._begin_again()

    def _begin_again(self) -> None:
        """Forget all but the store."""
        self._todo: deque[do.Action] = deque()
        self._rows: deque[LogRow] = deque()
        self._read = 0  # the offset that is read next
        self._messages: deque[bytes] = deque()  # of committed checkpoints, for the store
        self._writes: list[Write] = []  # of these, decoded
        self._bytes = 0  # of what goes into the store before the next changelog position
        self._loads = False  # it is too much for one write: it is there ahead of its position
        self._due: ChangelogPosition | None = None  # to be written behind it
        self._due_since = 0.0
        self._looked_ms, self._log_end = 0.0, 0
        self._caught_up_ms: float | None = None
        self._late_since_ms: float | None = None
        self._held: ChangelogPosition | None = None  # what the store is the state of

    @property
    def phase(self) -> StandbyPhase:
        """Return the current phase."""
        return self._core.phase

    @property
    def progress(self) -> StandbyProgress:
        """Return the progress of the standby."""
        position, checkpoint_id = (-1, -1) if self._held is None else (self._held.offset, self._held.checkpoint_id)
        since = self._caught_up_ms
        caught_up = since is not None and self._mono_ms() - since <= STANDBY_LOOK_MS
        end = max(self._read, self._log_end)
        return StandbyProgress(position, checkpoint_id, self._read, end, caught_up, self._behind(end))

    def _behind(self, end: int) -> int:
        """Return the number of messages behind the store's position, -1: it has less than the whole state."""
        restores = self._todo or self._changelog.pending or self._core.fold.last is not None
        if (self._held is None and restores) or not self._core.whole:
            return -1  # what it has read would be read again
        return end - (self._core.fold.start if self._held is None else self._held.offset + 1)

    def tick(self) -> bool:
        """Do the next thing; False if there is nothing to do before something comes to the changelog.

        An error of the log, and a full disk, is raised: the process ends and starts again. All else concerns this
        standby alone: a store that is damaged is wiped and restored, a changelog that is damaged stops it.
        """
        if self.phase is StandbyPhase.STOPPED:
            return False
        try:
            return self._tick()
        except StoreCorrupted as error:
            logger.warning(
                "store wiped, restoring from the changelog", extra={"task": self.wiring.name, "error": str(error)}
            )
            self._store.wipe()
            self.counters["wipes"] += 1
            self._core = StandbyCore(self.wiring.name, self.wiring.changelog)
            self._changelog.end()
            self._begin_again()
        except (Halted, ConfigError) as error:
            logger.error("standby stopped", extra=error.plain() | {"task": self.wiring.name})  # noqa: TRY400  # the error says all
            self._core.stop()
            self.trouble = str(error)
        return True

    def _tick(self) -> bool:
        if self.phase is StandbyPhase.CREATED:
            return self._begin()
        if self._messages:
            self._apply(self._messages.popleft())
        elif self._todo:
            self._perform(self._todo.popleft())
        elif self._due is not None and not self._changelog.pending and self._is_enough():
            self._write(self._due)
        elif self._rows:
            row = self._rows.popleft()
            self._todo.extend(self._core.row(on.ChangelogRow(row.offset, row.append_time_ms, row.value or b"")))
        elif not self._read_on():
            if self._due is None or self._changelog.pending:
                return False
            self._write(self._due)
        return True

    def _begin(self) -> bool:
        """Judge the store; False if the log does not show yet that it has what the store holds.

        A task that has run here may have applied a commit that readers see some time later.
        """
        position, bounds, now_ms = self._store.changelog_position(), self._look(), self._mono_ms()
        self._held = None if position is None else decode_changelog_position(position)
        if self._held is not None and self._held.offset >= bounds[1]:
            self._late_since_ms = now_ms if self._late_since_ms is None else self._late_since_ms
            if now_ms - self._late_since_ms < READABLE_S_MAX * 1_000:
                return False
        self._todo.extend(self._core.begin(self._held, bounds))
        return True

    def due_in_ms(self) -> float:
        """Return the time for which an idle driver may wait, if nothing comes."""
        return LATE_MS if self._changelog.pending or self.phase is StandbyPhase.CREATED else STANDBY_LOOK_MS

    def _read_on(self) -> bool:
        """Read what comes next; False if there is nothing now."""
        try:
            if self._changelog.pending:
                return self._catch_up()
            self._rows.extend(self._log.read(self.wiring.changelog, self._read, self._batch_bytes_max))
        except OffsetOutOfRange:
            return self._trimmed()
        if self._rows:
            self._read = self._rows[-1].offset + 1
            return True
        if self._due is None and self._core.whole:
            self._caught_up_ms = self._mono_ms()
        if self._mono_ms() - self._looked_ms < STANDBY_LOOK_MS:
            return False
        self._look()  # a client that has stopped to fetch learns that there is something
        return self._read < self._log_end

    def _catch_up(self) -> bool:
        """Read on to the end that there was when this began; False if it cannot be read yet.

        What has come since was perhaps read with it, and left out: it is read again.
        """
        event = self._changelog.read(starting=True)
        if isinstance(event, on.ChangelogRow):
            self._read = event.offset + 1
            self._todo.extend(self._core.row(event))
        elif isinstance(event, on.ChangelogEnd):
            self._todo.extend(self._core.end())
        return event is not None

    def _trimmed(self) -> bool:
        """Restore if what comes next is gone; else it is beyond the end that the log knows of now: wait."""
        start, end = self._look()
        if start <= self._read:
            return False
        logger.warning(
            "standby overtaken by a trim, restoring from the changelog",
            extra={"task": self.wiring.name, "offset": self._read, "start": start},
        )
        self.counters["standbys overtaken by a trim"] += 1
        self._changelog.end()
        self._todo.extend(self._core.trimmed((start, end)))
        return True

    def _look(self) -> tuple[int, int]:
        bounds = self._log.bounds(self.wiring.changelog)
        self._looked_ms, self._log_end = self._mono_ms(), bounds[1]
        return bounds

    def _perform(self, action: do.Action) -> None:
        match action:
            case do.WipeStore():
                self._writes, self._bytes, self._loads, self._due, self._held = [], 0, False, None, None
                self._store.wipe()
                self.counters["wipes"] += 1
            case do.ReadChangelog(offset):
                self._read = offset
                self._rows.clear()
                self._changelog.begin(offset)
            case do.ApplySegment(messages):
                self._messages.extend(messages)
            case do.WriteChangelogPosition(changelog_position):
                if self._due is None:
                    self._due_since = self._mono_ms()
                self._due = changelog_position
            case _:
                raise AssertionError(f"a standby does not know {action}")

    def _apply(self, message: bytes) -> None:
        """Take a committed data message: into the next write, or into the store if that would be too large."""
        name = str(self.wiring.changelog)
        self._bytes += len(message)
        if not self._loads:
            try:
                data = decode_data(message)
            except DecodeError as error:
                raise Halted(f"{name}: {unreadable(error)}", code=HaltCode.CHANGELOG_DAMAGED) from error
            if not data.reset_stores and self._bytes <= STANDBY_WRITE_BYTES:
                self._writes.extend(zip(data.stores, data.keys, data.values, strict=True))
                self.counters["restored records"] += len(data.stores)
                return
            self._loads = True
            for store, key, value in self._writes:
                self._store.load(store, [key], [value])
            self._writes = []
        self.counters["restored records"] += apply_segment(name, self._store, message)

    def _is_enough(self) -> bool:
        """Whether the changelog position is written now, though there is more: else a kill costs too much of it."""
        bytes_max = STANDBY_LOAD_BYTES if self._loads else STANDBY_WRITE_BYTES // 4
        return self._bytes >= bytes_max or self._mono_ms() - self._due_since >= STANDBY_POSITION_MS

    def _write(self, changelog_position: ChangelogPosition) -> None:
        self._store.write(self._writes, encode_changelog_position(changelog_position))
        self._held, self._due = changelog_position, None
        self._writes, self._bytes, self._loads = [], 0, False
        self.counters["changelog positions"] += 1
