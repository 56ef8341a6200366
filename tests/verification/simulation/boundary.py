"""The boundary of a process: each port call crosses it twice, and an armed fault goes off there.

A call has a name for what it means, not for the method: a send is a claim, a commit or a marker.
"""

from collections.abc import Callable

from grete.errors import StoreCorrupted, TransientError
from grete.protocol.changelog import ChangelogType
from grete.protocol.envelope import MessageType

CROSSINGS_MAX = 100_000  # in a turn; of 1,200 runs at most 498, but over 20,000 if a drain fires 7,000 timers

SENDS = {
    MessageType.FRAME: "send frame",
    MessageType.MARKER: "send marker",
    MessageType.ROLLBACK_MARKER: "send rollback marker",
    MessageType.PROGRESS: "send progress message",
    MessageType.JOINT_PROGRESS: "send progress message",
    MessageType.WATERMARK: "send watermark",
    ChangelogType.DATA: "send data",
    ChangelogType.COMMIT: "send commit",
    ChangelogType.CLAIM: "send claim",
    ChangelogType.INPUT_DECISION: "send decision",
    ChangelogType.TIME_LEASE: "send lease",
    ChangelogType.OUTPUT_RELEASE: "send release",
    ChangelogType.NOTE: "send note",
}

# In the order of a task's life. docs/explanation/crashes.md has a row for each; a test holds it to this table.
CALLS = (
    "read changelog position",
    "clear spill",
    "ask for bounds",
    "read changelog",
    "wipe store",
    "load segment",
    "send claim",
    "poll",
    "write restored changelog position",
    "send rollback marker",
    "read input",
    "spill",
    "read a spilled frame",
    "get",
    "scan",
    "send frame",
    "send watermark",
    "produce",
    "send data",
    "send commit",
    "write chunk",
    "write changelog position",
    "open sink",
    "begin file",
    "write file",
    "name file",
    "send marker",
    "trim",
)
LOGICAL_CALLS = (
    "send decision",
    "send note",
    "send lease",
    "send progress message",
    "send release",
)  # of a deterministic task
EARLY_CALLS = ("take over sink", "release to sink")  # of a deterministic task whose files get outputs early
SIDES = ("before", "after")


class TurnWithoutEnd(BaseException):
    """A process has crossed its boundary more often than any turn takes. As of Crashed, nothing may catch it."""


class Crashed(BaseException):
    """The process is gone, at once. Not an Exception: nothing may catch it on its way out."""


def name_of(value: bytes) -> str:
    """Return the name of the send of an internal message: the low half of its first byte is its type."""
    return SENDS[value[0] & 15]  # type: ignore[index]  # the enums are ints


class FailsAlone(StoreCorrupted):
    """The task that crosses fails, and no other: as its code does, or its store (then ``damaged``).

    Of an error that no policy of an input takes for a failed record.
    """

    def __init__(self, where: str, *, damaged: bool) -> None:
        super().__init__(f"simulated: {where}")
        self.damaged = damaged


class Ambush:
    """Waits in a world, at one side of one call, for whichever process comes next."""

    __slots__ = ("count", "hit", "place")

    def __init__(self, hit: Callable[[], None]) -> None:
        self.place = ("", "")
        self.count = 0
        self.hit = hit

    def lay(self, side: str, call: str, count: int) -> None:
        """Wait for the so-manieth crossing from now."""
        self.place, self.count = (side, call), count

    def springs(self, side: str, call: str) -> bool:
        """Tell whether this crossing is the one."""
        if self.place != (side, call):
            return False
        self.count -= 1
        if self.count > 0:
            return False
        self.place = ("", "")
        self.hit()
        return True


class Boundary:
    """Counts the crossings of one process. 0 means: not armed."""

    __slots__ = ("ambush", "crash_at", "crossed", "full_at", "hit", "may_fail_alone", "turn_ends", "where")

    def __init__(self, ambush: Ambush) -> None:
        self.crossed = 0
        self.turn_ends = CROSSINGS_MAX  # a crossing behind it is of a turn without end
        self.crash_at = 0
        self.full_at = 0
        self.where = ""
        self.may_fail_alone: Callable[[], bool] = lambda: False  # whether what crosses is one of several tasks
        self.ambush = ambush
        self.hit = ambush.hit  # told of each fault that goes off

    def begin_turn(self) -> None:
        """Begin a turn of the process, or its start: it has an end, or is a finding."""
        self.turn_ends = self.crossed + CROSSINGS_MAX

    def before(self, call: str) -> None:
        """Cross into a port call. Raises Crashed or TransientError if that is armed; TurnWithoutEnd."""
        self.crossed += 1
        if self.crossed > self.turn_ends:
            raise TurnWithoutEnd(f"a turn does not end: {call} comes behind {CROSSINGS_MAX} crossings of it")
        if self.ambush.count or self.crash_at:
            self._may_crash("before", call)
        if self.full_at and self.crossed >= self.full_at:
            self.full_at = 0
            self.where = f"in {call}"
            self.hit()
            raise TransientError(f"simulated: the disk is full ({call})")

    def after(self, call: str) -> None:
        """Cross back. Raises Crashed if that is armed."""
        self.crossed += 1
        if self.ambush.count or self.crash_at:
            self._may_crash("after", call)

    def arm_crash(self, crossings: int) -> None:
        """Crash at the so-manieth crossing from now."""
        self.crash_at = self.crossed + crossings

    def arm_full(self, crossings: int) -> None:
        """Let the first call after that many crossings find the disk full."""
        self.full_at = self.crossed + crossings

    def disarm(self) -> None:
        """Let nothing go off any more."""
        self.crash_at = self.full_at = 0

    def _may_crash(self, side: str, call: str) -> None:
        if self.crash_at and self.crossed >= self.crash_at:
            self.hit()
        elif not self.ambush.springs(side, call):
            return
        self.where = f"{side} {call}"
        if self.crossed % 3 and self.may_fail_alone():
            self.crash_at = 0
            raise FailsAlone(self.where, damaged=self.crossed % 3 == 2)
        raise Crashed
