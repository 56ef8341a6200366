"""The messages of one deterministic producer in one partition, and those lost to a power loss or a damage."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from grete.core.events import Advance
from grete.protocol.control import decode_progress, decode_watermark
from grete.protocol.envelope import MessageType, decode_header
from grete.protocol.frames import decode_columns, frame_count
from tests.verification.simulation.reference import Record


@dataclass(slots=True)
class Made:
    """The messages of one producer in one partition so far, by all of its processes."""

    records: list[Record] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)  # of the same
    digests: list[int] = field(default_factory=lambda: [0])  # before the first record, after each
    advanced: int = -1  # the time of the greatest progress message
    told: dict[int, Advance] = field(default_factory=dict)  # watermarks, by their times
    cut: bool = False  # some of it was lost with the power
    _lost: set[int] = field(default_factory=set)  # times of watermarks that a damaged log may not show to a reader
    _end: int = -1  # of the log before the damage; -1: there was none
    _passed: int = -1  # the time that the messages have passed that the damage left, and those behind them

    def last_told(self, t: int) -> int:
        """Return the time of the last watermark up to ``t`` that its reader must have; -1: there is none."""
        return max((each for each in self.told if each <= t and each not in self._lost), default=-1)

    def take_back(self, committed: int, frontier: int, left: Sequence[bytes], lost: Sequence[bytes]) -> None:
        """Forget what no message that is left says, and its reader has not committed: then it is trimmed, not lost."""
        headers = [(decode_header(value), value) for value in left]
        ends = [h.seq + frame_count(value) - 1 for h, value in headers if h.type is MessageType.FRAME]
        end = max(ends, default=0)
        end = max(end, committed)  # what is left may be old records, sent again behind newer ones that are trimmed
        del self.records[end:], self.values[end:], self.digests[end + 1 :]
        self.advanced = max((decode_progress(v).t for h, v in headers if h.type is MessageType.PROGRESS), default=-1)
        gone = _times(lost) - _times(left)
        self.cut = True
        self.told = {t: advance for t, advance in self.told.items() if t <= frontier or t not in gone}

    def lose(self, left: Sequence[bytes], lost: Sequence[bytes], end: int) -> None:
        """Note which watermarks a damage takes. They have no seq: so a reader cannot tell (decision 0029).

        ``end``: of the log before. A reader that was there goes on there, and misses what comes at lower offsets.
        """
        self._lost |= _times(lost) - _times(left)
        self._end, self._passed = end, max(map(_passes, left), default=-1)

    def after_a_damage(self, offset: int, value: bytes) -> None:
        """Note the next message. A lost watermark that is told again before its time has passed is there."""
        if self._end < 0:
            return
        if offset < self._end:
            self._lost |= _times([value]) - set(self.told)
        else:
            self._lost -= {t for t in _times([value]) if t > self._passed}
        self._passed = max(self._passed, _passes(value))


def _times(values: Sequence[bytes]) -> set[int]:
    """Return the times of the watermarks among messages."""
    marks = [value for value in values if decode_header(value).type is MessageType.WATERMARK]
    return {t for value in marks for t in decode_watermark(value).times or ()}


def _passes(value: bytes) -> int:
    """Return the time that a message passes; -1: it passes none."""
    kind = decode_header(value).type
    if kind is MessageType.PROGRESS:
        return decode_progress(value).t
    logical = decode_columns(value)[4] if kind is MessageType.FRAME else None
    return -1 if logical is None else logical[0][-1] - 1
