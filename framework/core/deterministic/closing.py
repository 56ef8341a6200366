"""The reason to close a checkpoint in deterministic mode: the task's timer, as no checkpoint spans tasks (D4)."""

from grete.core.checkpoint_clock import CheckpointClock
from grete.core.idleness import Idleness
from grete.core.limits import COMMIT_REST_FACTOR, COMMIT_REST_MS_MAX, Limits


class Closing:
    """The reasons for which the open checkpoint is closed."""

    def __init__(self, limits: Limits) -> None:
        self.clock = CheckpointClock(limits.checkpoint_interval_ms)
        intervals = limits.checkpoint_interval_ms, limits.idle_checkpoint_interval_ms
        self.idleness = Idleness(*intervals, awaited=False, grows=False)
        self.open_bytes = 0  # in the open write batch
        self._frozen_bytes = 0  # of parts of the open checkpoint that are sent ahead; then of the one being committed
        self.requested = False  # by the code of this task
        self.stopping = False
        self.last_is_closed = False  # that of a graceful stop
        self._limits = limits
        self._untrimmed_bytes = 0  # of messages read since the last freeze
        self._frozen_ms = self._rest_until_ms = 0  # when the last checkpoint was frozen, and how long none is due

    @property
    def batch_is_full(self) -> bool:
        """Whether the open write batch is near its bound: its checkpoint must be closed (A9), a source can wait."""
        return self.open_bytes > self._limits.uncommitted_state_bytes_max // 2

    @property
    def has_no_room(self) -> bool:
        """Whether nothing may be processed before the commit that is on its way: what is frozen is in memory, too."""
        all_bytes = self.open_bytes + self._frozen_bytes
        return self.batch_is_full or all_bytes > self._limits.uncommitted_state_bytes_max

    @property
    def input_is_long(self) -> bool:
        """Whether much input is behind the last commit: streams stay short, and so do restarts."""
        return self._untrimmed_bytes > self._limits.untrimmed_bytes_max

    def due(self, frozen: int, mono_ms: int) -> bool:
        """Tell whether the checkpoint behind ``frozen`` is to be closed now, while none is being committed.

        One of which a part was sent is. One without news is left out.
        """
        if self.stopping or self.batch_is_full or self.input_is_long or self._frozen_bytes:
            return True
        if self.requested and mono_ms >= self._rest_until_ms:
            return True
        is_due = self.clock.due(self.idleness.closed(frozen) + 1, mono_ms) and mono_ms >= self._rest_until_ms
        return is_due and not self.idleness.leave_out(frozen, self.clock.boundary(mono_ms))

    def next_due_ms(self, frozen: int, mono_ms: float) -> float:
        """Return in how many ms the checkpoint behind ``frozen`` can be closed by the clock."""
        open_checkpoint = self.idleness.closed(frozen) + 1
        by_clock = 0 if self.requested else self.clock.next_due_ms(open_checkpoint, int(mono_ms))
        return max(by_clock, self._rest_until_ms - mono_ms)

    def checkpoint_id(self, frozen: int, mono_ms: int) -> int:
        """Return the number under which the checkpoint behind ``frozen`` is closed."""
        return max(self.idleness.closed(frozen) + 1, self.clock.boundary(mono_ms))

    def opened(self, size: int) -> None:
        """Take the size of the open write batch: something in it is news."""
        self.open_bytes = size
        self.idleness.news |= size > 0

    def read(self, size: int) -> None:
        """Count a message of this size: it is read again by a restart before the next commit."""
        self._untrimmed_bytes += size

    def part_frozen(self) -> None:
        """Begin the next part of the open checkpoint."""
        self._frozen_bytes, self.open_bytes = self._frozen_bytes + self.open_bytes, 0

    def frozen(self, mono_ms: int) -> None:
        """Begin the next checkpoint."""
        self.part_frozen()
        self._untrimmed_bytes = 0
        self._frozen_ms, self.idleness.news, self.requested = mono_ms, False, False

    def applied(self) -> None:
        """Note that the state store has what was frozen."""
        self._frozen_bytes = 0

    def anchor(self, append_time_ms: int, mono_ms: int) -> None:
        """Take the append time of an own message as the present, but never go back: no other task waits for it."""
        self.clock.anchor(max(append_time_ms, self.clock.now(mono_ms)), mono_ms)

    def committed(self, mono_ms: int) -> None:
        """Let a commit that took long be followed by a rest."""
        self._rest_until_ms = mono_ms + min(COMMIT_REST_FACTOR * (mono_ms - self._frozen_ms), COMMIT_REST_MS_MAX)
