"""The event time that a deterministic task tells its consumers, as of fixed moments of logical time (E2)."""

import struct
from collections.abc import Callable, Sequence

from framework.core.deterministic.logical_watermarks import NEVER, step_at
from framework.core.events import Advance
from framework.execution.event_time import BEFORE_ALL
from framework.execution.reserved_stores import EVENT_TIME

_TOLD = EVENT_TIME + b"told "  # in META, before a stream's name
_ENTRY = struct.Struct(">q?q")  # event time told last, whether the task was idle, when the next is due


class AnnouncedTime:
    """Collects what consumers are to be told. What was told is state: a successor must not tell it again otherwise.

    Event time that changes at logical time t is told as of the end of the step that t lies in, once that has passed.
    """

    def __init__(self, topics: Sequence[str], watermark: Callable[[], tuple[int, bool] | None]) -> None:
        """``topics``: the streams to consumers that go by event time; ``watermark``: the event time to tell now."""
        self.due = NEVER  # µs
        self._topics = tuple(topics)
        self._watermark = watermark
        self._told = BEFORE_ALL, False
        self._advances: list[Advance] = []

    def load(self, get: Callable[[bytes], bytes | None]) -> None:
        """Go on from the state. If a stream was not told yet, as that of a stage added last, tell all of them again."""
        self._told, self.due, self._advances = (BEFORE_ALL, False), NEVER, []
        entries = [entry for topic in self._topics if (entry := get(_key(topic))) is not None]
        if entries and len(entries) == len(self._topics):
            watermark, idle, self.due = _ENTRY.unpack(entries[0])
            self._told = watermark, idle

    def save(self) -> dict[bytes, bytes]:
        """Return the state."""
        entry = _ENTRY.pack(*self._told, self.due)
        return {_key(topic): entry for topic in self._topics}

    @staticmethod
    def is_due(key: bytes, entry: bytes) -> bool:
        """Tell whether an entry of a saved state says of event time that was still to be told."""
        return key.startswith(_TOLD) and _ENTRY.unpack(entry)[2] != NEVER

    @staticmethod
    def due_in(topic: str, get: Callable[[bytes], bytes | None]) -> int:
        """Return the logical time in µs as of which a saved state is still to tell a stream of event time, or NEVER."""
        entry = get(_key(topic))
        return NEVER if entry is None else int(_ENTRY.unpack(entry)[2])

    def changed(self, t: int) -> None:
        """Note that event time may have changed at logical time ``t``; all that was due before has been told."""
        if self._topics:
            self.due = NEVER if self._watermark() == self._told else step_at(t)

    def pass_to(self, t: int) -> None:
        """Tell what is due by logical time ``t``: before anything of a later time is processed."""
        watermark = self._watermark()
        if self.due <= t and watermark is not None:
            self._advances.append(Advance(self.due, *watermark))
            self._told, self.due = watermark, NEVER

    def take(self) -> list[Advance]:
        """Return and forget what is to be sent."""
        advances, self._advances = self._advances, []
        return advances


def _key(topic: str) -> bytes:
    return _TOLD + topic.encode()
