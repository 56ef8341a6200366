"""Reads a task's own changelog for its core: one message a call, up to the end that was there when it was asked."""

from collections import deque
from collections.abc import Callable

from grete.core import events as on
from grete.core.graph.task_topology import TaskWiring
from grete.errors import Fenced, OffsetOutOfRange
from grete.logs.partition_reader import PartitionReader
from grete.ports import LogReader, LogRow


class OwnChangelog:
    """Nothing is read before ``begin``. ``progress``: changelog offset reached, offset to reach."""

    def __init__(self, log: LogReader, wiring: TaskWiring, bytes_max: int, mono_ms: Callable[[], float]) -> None:
        self.progress = (0, 0)
        self._log, self._name, self._partition, self._bytes_max = log, wiring.name, wiring.changelog, bytes_max
        self._clock_s = lambda: mono_ms() / 1000
        self._appended = 0  # offset behind the last own message that the log has acknowledged
        self._rows: deque[LogRow] = deque()
        self._reader: PartitionReader | None = None

    @property
    def pending(self) -> bool:
        """Whether the end has not been reached yet."""
        return self._reader is not None

    def appended(self, offset: int) -> None:
        """Note that the log has acknowledged an own message: from now on a read goes up to it at least."""
        self._appended = max(self._appended, offset + 1)

    def begin(self, offset: int) -> None:
        """Read from ``offset`` up to the present end."""
        self._rows.clear()
        end = self._log.bounds(self._partition)[1]
        self._log.expect({self._partition: (offset, end)})  # other tasks have their turns meanwhile
        self._reader = PartitionReader(
            self._log, self._partition, offset, end, acknowledged=self._appended, clock_s=self._clock_s
        )

    def end(self) -> None:
        """Read no more of what was begun."""
        self._rows.clear()
        self._reader = None

    def read(self, *, starting: bool) -> on.ChangelogRow | on.ChangelogEnd | None:
        """Return the next message, or the end; None if the log has more, and does not show it yet.

        Raises OffsetOutOfRange if it was trimmed while ``starting``: begin again; later Fenced. TransientError if
        nothing comes for too long.
        """
        reader = self._reader
        assert reader is not None
        if not self._rows:
            if reader.position < reader.end and not self._log.at_hand(self._partition, reader.position):
                return None
            try:
                found = reader.read(self._bytes_max)
            except OffsetOutOfRange as error:
                if starting:
                    raise
                raise Fenced(
                    f"{self._name}: its changelog was trimmed by a newer generation: {error}", task=self._name
                ) from error
            if found is None:
                return None
            self._rows.extend(found)
        if not self._rows:
            self._reader = None
            self.progress = (reader.end, reader.end)  # there may be no message at the very end
            return on.ChangelogEnd(reader.position)
        row = self._rows.popleft()
        self.progress = (row.offset + 1, reader.end)
        return on.ChangelogRow(row.offset, row.append_time_ms, row.value or b"")
