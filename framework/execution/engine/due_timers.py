"""Timers that are due and have not fired: their slices come before what is processed next (E10), aligned mode."""

from grete.core import events as on
from grete.core.aligned.task import TaskCore
from grete.execution.engine.input_in_flight import InputInFlight
from grete.execution.engine.task_parts import TaskParts
from grete.protocol.envelope import MessageType, decode_header
from grete.protocol.errors import DecodeError


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
