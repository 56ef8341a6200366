"""Progress that the tasks of one process announce, told to each partition by one message for all of them (D1)."""

from collections.abc import Callable

from grete.core.actions import Announce
from grete.ports import Log
from grete.protocol.control import encode_joint_progress
from grete.protocol.ids import TopicPartition

NO_TASK = -1  # the owner of such a message: no commit waits for it
HELD_PARTS = 4  # of a pace: so long the first to announce waits for others, as all do at the same times


class JointProgress:
    """Between two tasks of many partitions nearly all messages would be progress, one for each pair of them.

    What is held here is lost with the process, as what is on its way to the log may be: a successor announces no less.
    """

    def __init__(self, log: Log, mono_ms: Callable[[], float]) -> None:
        self.due_ms: float | None = None  # when what is held leaves; None: nothing is held
        self._log, self._mono_ms = log, mono_ms
        self._held: dict[TopicPartition, dict[int, Announce]] = {}  # by producer

    def hold(self, action: Announce, pace_ms: float) -> None:
        """Take what a task announces, in place of what it has announced before."""
        if self.due_ms is None:
            self.due_ms = self._mono_ms() + pace_ms / HELD_PARTS
        for partition in action.seqs:
            self._held.setdefault(partition, {})[action.producer] = action

    def leave(self) -> None:
        """Send what is held, if it is due: behind all that these tasks have sent."""
        assert (self.due_ms is None) == (not self._held), f"progress for {len(self._held)} partitions has no time"
        if self.due_ms is None or self._mono_ms() < self.due_ms:
            return
        for partition, held in self._held.items():
            rows = [(each.producer, each.generation, each.seqs[partition], each.t) for each in held.values()]
            last = max(each.checkpoint_id for each in held.values())
            self._log.send(NO_TASK, 0, partition, encode_joint_progress(last, rows))
        self.due_ms = None
        self._held.clear()
