"""A standby of one task: reads its changelog, and keeps a store of its own at what is committed (R7)."""

import logging
from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

from grete.core import actions as do
from grete.core import events as on
from grete.core.graph.task_topology import TaskWiring
from grete.core.lifecycle import StandbyPhase
from grete.core.standby import StandbyCore
from grete.errors import ConfigError, Halted, OffsetOutOfRange, StoreCorrupted
from grete.execution.changelog.own_changelog import OwnChangelog
from grete.execution.changelog.standby_store import StandbyStore
from grete.execution.limits import READ_AGAIN_MS, STANDBY_LOOK_MS
from grete.logs.partition_reader import READABLE_S_MAX
from grete.ports import LogReader, LogRow, StateStore
from grete.protocol.changelog_position import ChangelogPosition

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


class FollowedChangelog:
    """The changelog as its standby reads it: up to the end of the beginning, then on as it grows.

    ``read``: the offset that is read next. ``end``: where the log was last seen to end.
    """

    def __init__(self, log: LogReader, wiring: TaskWiring, bytes_max: int, mono_ms: Callable[[], float]) -> None:
        """Read nothing yet."""
        self.read = self.end = 0
        self.beginning = OwnChangelog(log, wiring, bytes_max, mono_ms)
        self._log, self._partition, self._bytes_max, self._mono_ms = log, wiring.changelog, bytes_max, mono_ms
        self._rows: deque[LogRow] = deque()
        self._looked_ms = 0.0
        self._all_read_ms: float | None = None  # when there was last nothing more

    def forget(self) -> None:
        """Read nothing more of what was begun."""
        self.beginning.end()
        self._rows.clear()
        self.read = self.end = 0
        self._looked_ms, self._all_read_ms = 0.0, None

    def begin(self, offset: int) -> None:
        """Read from ``offset`` on."""
        assert offset >= 0, "no changelog begins before its first offset"
        self.read = offset
        self._rows.clear()
        self.beginning.begin(offset)

    @property
    def has_caught_up(self) -> bool:
        """Whether the standby has read to the end of the log within the last STANDBY_LOOK_MS."""
        return self._all_read_ms is not None and self._mono_ms() - self._all_read_ms <= STANDBY_LOOK_MS

    def look(self) -> tuple[int, int]:
        """Return the bounds that the log has now."""
        bounds = self._log.bounds(self._partition)
        self._looked_ms, self.end = self._mono_ms(), bounds[1]
        return bounds

    def next_row(self) -> on.ChangelogRow | None:
        """Return the next message of what was fetched, None: there is none."""
        if not self._rows:
            return None
        row = self._rows.popleft()
        return on.ChangelogRow(row.offset, row.append_time_ms, row.value or b"")

    def catch_up(self) -> on.ChangelogRow | on.ChangelogEnd | None:
        """Read on to the end that there was at the beginning; None if it cannot be read yet.

        What has come since was perhaps read with it, and left out: it is read again.
        """
        event = self.beginning.read(starting=True)
        if isinstance(event, on.ChangelogRow):
            assert event.offset >= self.read, "a changelog went back while it was read"
            self.read = event.offset + 1
        return event

    def fetch(self, *, whole: bool) -> bool:
        """Fetch what has come; False if there is nothing now. ``whole``: the store has all that was read before."""
        self._rows.extend(self._log.read(self._partition, self.read, self._bytes_max))
        if self._rows:
            self.read = self._rows[-1].offset + 1
            return True
        if whole:
            self._all_read_ms = self._mono_ms()
        if self._mono_ms() - self._looked_ms < STANDBY_LOOK_MS:
            return False
        self.look()  # a client that has stopped to fetch learns that there is something
        return self.read < self.end


class StandbyTask:
    """Keeps the store of a task ready. ``tick`` does one small thing, as that of a task does.

    Each committed checkpoint goes into the store as a whole, its changelog position last. What is not committed stays
    in memory. It needs a log only to read.

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
        self._mono_ms = mono_ms
        self._core = StandbyCore(wiring.name, wiring.changelog)
        self._changelog = FollowedChangelog(log, wiring, 4 * batch_bytes_max, mono_ms)
        self._store = StandbyStore(str(wiring.changelog), store, self.counters, mono_ms)
        self._todo: deque[do.Action] = deque()
        self._late_since_ms: float | None = None  # the log does not show yet what the store has

    @property
    def phase(self) -> StandbyPhase:
        """Return the current phase."""
        return self._core.phase

    @property
    def progress(self) -> StandbyProgress:
        """Return the progress of the standby."""
        held, changelog = self._store.held, self._changelog
        position, checkpoint_id = (-1, -1) if held is None else (held.offset, held.checkpoint_id)
        end = max(changelog.read, changelog.end)
        return StandbyProgress(
            position, checkpoint_id, changelog.read, end, changelog.has_caught_up, self._behind(held, end)
        )

    def _behind(self, held: ChangelogPosition | None, end: int) -> int:
        """Return the number of messages behind the store's position, -1: it has less than the whole state."""
        restores = self._todo or self._changelog.beginning.pending or self._core.fold.last is not None
        if (held is None and restores) or not self._core.whole:
            return -1  # what it has read would be read again
        return end - (self._core.fold.start if held is None else held.offset + 1)

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
            self._core = StandbyCore(self.wiring.name, self.wiring.changelog)
            self._changelog.forget()
            self._todo.clear()
            self._late_since_ms = None
        except (Halted, ConfigError) as error:
            logger.error("standby stopped", extra=error.plain() | {"task": self.wiring.name})  # noqa: TRY400  # the error says all
            self._core.stop()
            self.trouble = str(error)
        return True

    def _tick(self) -> bool:
        """Apply what is committed before anything else is read: a position comes behind all that it stands for."""
        if self.phase is StandbyPhase.CREATED:
            return self._begin()
        if self._store.apply_next():
            return True
        pending = self._changelog.beginning.pending
        if self._todo:
            self._perform(self._todo.popleft())
        elif self._store.due is not None and not pending and self._store.is_enough:
            self._store.write()
        elif (row := self._changelog.next_row()) is not None:
            self._todo.extend(self._core.row(row))
        elif not self._read_on():
            if self._store.due is None or self._changelog.beginning.pending:
                return False
            self._store.write()
        return True

    def _begin(self) -> bool:
        """Judge the store; False if the log does not show yet that it has what the store holds.

        A task that has run here may have applied a commit that readers see some time later.
        """
        held, bounds, now_ms = self._store.judge(), self._changelog.look(), self._mono_ms()
        if held is not None and held.offset >= bounds[1]:
            self._late_since_ms = now_ms if self._late_since_ms is None else self._late_since_ms
            if now_ms - self._late_since_ms < READABLE_S_MAX * 1_000:
                return False
        self._todo.extend(self._core.begin(held, bounds))
        return True

    def due_in_ms(self) -> float:
        """Return the time for which an idle driver may wait, if nothing comes."""
        waits = self._changelog.beginning.pending or self.phase is StandbyPhase.CREATED
        return READ_AGAIN_MS if waits else STANDBY_LOOK_MS

    def _read_on(self) -> bool:
        """Read what comes next; False if there is nothing now."""
        try:
            if not self._changelog.beginning.pending:
                return self._changelog.fetch(whole=self._store.due is None and self._core.whole)
            event = self._changelog.catch_up()
        except OffsetOutOfRange:
            return self._trimmed()
        if event is not None:
            self._todo.extend(self._core.row(event) if isinstance(event, on.ChangelogRow) else self._core.end())
        return event is not None

    def _trimmed(self) -> bool:
        """Restore if what comes next is gone; else it is beyond the end that the log knows of now: wait."""
        start, end = self._changelog.look()
        if start <= self._changelog.read:
            return False
        logger.warning(
            "standby overtaken by a trim, restoring from the changelog",
            extra={"task": self.wiring.name, "offset": self._changelog.read, "start": start},
        )
        self.counters["standbys overtaken by a trim"] += 1
        self._changelog.beginning.end()
        self._todo.extend(self._core.trimmed((start, end)))
        return True

    def _perform(self, action: do.Action) -> None:
        match action:
            case do.WipeStore():
                self._store.wipe()
            case do.ReadChangelog(offset):
                self._changelog.begin(offset)
            case do.ApplySegment(messages):
                self._store.add(messages)
            case do.WriteChangelogPosition(changelog_position):
                self._store.take_position(changelog_position)
            case _:
                raise AssertionError(f"a standby does not know {action}")
