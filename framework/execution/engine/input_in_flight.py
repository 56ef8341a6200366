"""The input that an aligned task has read and not finished: it waits for calls, or for timers that are due before it.

A checkpoint waits for records in flight. But while these wait for timers that are due it may close (E10): rows of
topics stay in flight, and it says that they are to be read. So the core knows of rows when they have had their turns.
"""

from collections import deque
from collections.abc import Sequence

from grete.core import events as on
from grete.core.aligned.task import TaskCore
from grete.execution.engine.task_parts import TaskParts
from grete.ports import LogRow
from grete.protocol.envelope import MessageType, decode_header
from grete.protocol.errors import DecodeError
from grete.protocol.ids import TopicPartition


class InputInFlight:
    """The input of one task in flight, none without calls. ``covered``: a commit has what is taken, before it runs."""

    def __init__(self, parts: TaskParts, *, covered: bool) -> None:
        self._parts, self._records, self._covered = parts, parts.runner.in_flight, covered
        self._rows: deque[tuple[TopicPartition, list[LogRow]]] = deque()
        self._frames = 0

    @property
    def any(self) -> bool:
        """Whether there are records or steps that have not had their turn."""
        return self._records is not None and self._records.count > 0

    @property
    def full(self) -> bool:
        """Whether no more is to be read before some of them have had their turn."""
        return self._records is not None and self._records.full

    @property
    def frames(self) -> bool:
        """Whether frames are among them that the open checkpoint is to have."""
        return self._frames > 0

    def took_rows(self, partition: TopicPartition, rows: Sequence[LogRow]) -> None:
        """Note rows of a topic that the code has: all have run, unless their records have turns."""
        if self._records is None or self._covered:
            self._ran(partition, rows)
            return
        self._rows.append((partition, [*rows]))
        self._tell(partition, self._parts.core.external.position[partition])
        self.had_turns()

    def took_frame(self) -> None:
        """Note a frame, behind what it holds."""
        if self._records is not None and not self._covered:
            self._frames += 1
            self._records.then(self._frame_ran)

    def had_turns(self) -> None:
        """Tell the core how far rows have had their turns."""
        reached = {} if self._records is None or self._covered else self._records.take_reached()
        while self._rows:
            partition, rows = self._rows[0]
            end = reached.get(partition, -1)
            done = len(rows) if rows[-1].offset < end else sum(row.offset < end for row in rows)
            if done:
                self._ran(partition, rows[:done])
            if done < len(rows):
                self._rows[0] = partition, rows[done:]
                return
            self._rows.popleft()

    def forget(self, partition: TopicPartition) -> None:
        """Forget rows that are read again; of a task that was rolled back nothing is in flight."""
        self._rows = deque(each for each in self._rows if each[0] != partition)
        if not self.any:
            self._frames = 0

    def _frame_ran(self) -> None:
        assert self._frames > 0, "a frame has run that was not taken"
        self._frames -= 1

    def _ran(self, partition: TopicPartition, rows: Sequence[LogRow]) -> None:
        self._parts.inputs.holes.read(partition, self._parts.core.external.position[partition], rows)
        self._tell(partition, rows[-1].offset + 1)

    def _tell(self, partition: TopicPartition, position: int) -> None:
        self._parts.tell(on.ExternalProcessed(partition, position, False, self._parts.io.overlay.open_bytes))


class DueTimers:
    """Fires the due timers of one task by slices. Between two of them its checkpoint may close, or the task stop."""

    def __init__(self, parts: TaskParts, core: TaskCore, in_flight: InputInFlight) -> None:
        self._parts, self._core, self._in_flight = parts, core, in_flight
        self._due = parts.runner.due
        if self._due is not None:
            self._due.by_slices()

    @property
    def left(self) -> bool:
        """Tell whether timers are due that the task has not fired."""
        return self._due is not None and self._due.left

    def fire(self) -> None:
        """Let the next slice fire."""
        assert self._due is not None
        self._due.fire_slice()
        self._tell()

    def tell_left(self) -> None:
        """Tell the core if something that was processed has left some."""
        if self.left:
            self._tell()

    def _tell(self) -> None:
        waits = self.left and self._in_flight.frames
        self._parts.tell(on.Fired(self._parts.io.overlay.open_bytes, self.left, waits))

    @property
    def let_markers_pass(self) -> bool:
        """Tell whether the driver may read messages between two slices: a marker among them closes a checkpoint."""
        return self._core.aligned and bool(self._parts.inputs.internal) and self._core.wants_input

    def hold(self, message: bytes) -> bool:
        """Tell whether a message must wait until the due timers have fired, as the task would process it now."""
        if not self.left:
            return False
        try:
            header = decode_header(message)
        except DecodeError:
            return True  # the core says so, in its turn
        is_early = header.checkpoint_id > self._core.frozen + 1 and header.producer not in self._parts.wiring.logical
        return header.type in (MessageType.FRAME, MessageType.WATERMARK) and not is_early
