"""The reasons to close a checkpoint in aligned mode, and its number (A1, A6, A9). At least once, a timer decides."""

from collections.abc import Sequence
from typing import NamedTuple

from grete.core.aligned.early_buffer import EarlyFrame
from grete.core.aligned.inputs import Inputs
from grete.core.checkpoint_clock import CheckpointClock
from grete.core.commit_pipeline import CommitPipeline
from grete.core.events import Fired
from grete.core.external_inputs import ExternalInputs
from grete.core.graph.task_topology import TaskWiring
from grete.core.idleness import Idleness
from grete.core.limits import SENT_PARTS, SENT_PARTS_MAX, SENT_RECORD_BYTES, Limits
from grete.protocol.ids import TopicPartition


class SentDownstream:
    """The bytes of the open checkpoint that tasks behind may hold: if they are many, it closes early (A9)."""

    def __init__(self, state_bytes_max: int) -> None:
        """``state_bytes_max``: the bound of a write batch, the same for all tasks."""
        self.state_bytes_max = state_bytes_max
        self._bytes = 0
        self._bytes_max = state_bytes_max // SENT_PARTS  # less each time that a task asks
        self._asked, self.is_asked = 0, False  # the last checkpoint that a task asked for; whether it is open

    @property
    def much(self) -> bool:
        """Whether the tasks behind may hold a good part of their bound."""
        return self._bytes > self._bytes_max

    def sent(self, frames: Sequence[tuple[TopicPartition, int, bytes]]) -> None:
        """Count frames, (partition, records, body), that were sent to them."""
        self._bytes += sum(records * SENT_RECORD_BYTES + len(body) for _, records, body in frames)

    def ask(self, checkpoint_id: int, frozen: int) -> None:
        """Take a task's word for it that it holds much of a checkpoint: it is closed, and the next ones are smaller.

        Much may be on its way already, so to close this one alone would come too late again.
        """
        if checkpoint_id > self._asked:
            self._asked, self.is_asked = checkpoint_id, checkpoint_id > frozen
            self._bytes_max = max(self._bytes_max // 2, self.state_bytes_max // SENT_PARTS_MAX)

    def begin_checkpoint(self) -> None:
        """Note that nothing of the open checkpoint was sent yet."""
        self._bytes, self.is_asked = 0, False


class TimersLeft(NamedTuple):
    """The timers that are due and have not fired: they come before all that would be processed (E10)."""

    left: bool = False
    wait: bool = False  # with frames of the open checkpoint, which wait for calls, too


class AlignedClosing:
    """The reasons for which the open checkpoint is closed: its timer, its alignment, a full write batch, a stop."""

    def __init__(
        self,
        task: TaskWiring,
        limits: Limits,
        inputs: Inputs,
        external: ExternalInputs,
        commits: CommitPipeline,
        *,
        aligned: bool,
    ) -> None:
        self.clock = CheckpointClock(limits.checkpoint_interval_ms)
        intervals = limits.checkpoint_interval_ms, limits.idle_checkpoint_interval_ms
        awaited, grows = aligned and bool(task.outputs), aligned and not task.logical
        self.idleness = Idleness(*intervals, awaited=awaited, grows=grows)
        self.by_timer = task.is_source or not aligned
        self.open_bytes = 0  # in the open write batch
        self.requested = False  # by the code of this task
        self.stopping = False
        self.downstream = SentDownstream(limits.uncommitted_state_bytes_max)
        self._timers = TimersLeft()
        self._last_is_closed = False  # that of a graceful stop, of a task that goes by its timer
        self._inputs, self._external, self._commits = inputs, external, commits

    @property
    def batch_is_full(self) -> bool:
        """Whether the open write batch is near its bound: its checkpoint must be closed (A9), a source can wait."""
        return self.open_bytes > self.downstream.state_bytes_max // 2

    @property
    def at_end(self) -> bool:
        """Whether the inputs have ended, as far as is known (A2b)."""
        return self._external.all_ended and self._inputs.all_ended and not self._timers.left

    def stopped(self, frozen: int) -> bool:
        """Whether a graceful stop has nothing left to close (R6).

        What a producer that has stopped keeps from being aligned is read again by the next start. So is what waits for
        timers, as many as are left: a stop does not wait for them (E10).
        """
        if not self.stopping or self.by_timer:
            return self.stopping and (self._last_is_closed or self._timers.wait)
        if self._timers.left or not self._inputs.holds_input:
            return True
        is_last = any(each.last is not None and each.last <= frozen for each in self._inputs.channels.values())
        self._inputs.seen["stops with input that is not complete"] += is_last
        return is_last

    def fired(self, event: Fired) -> bool:
        """Note which timers are left; return whether the open checkpoint is not to be closed before they have fired."""
        assert event.left or not event.waits, event  # frames wait for timers
        self.open_bytes, self._timers = event.open_bytes, TimersLeft(event.left, event.waits)
        return event.waits

    def resume(self) -> None:
        """Begin behind a commit."""
        self._timers = TimersLeft()
        self.begin_checkpoint()

    def begin_checkpoint(self) -> None:
        """Note that nothing is in the open checkpoint any more, or yet."""
        self.open_bytes, self.requested = 0, False
        self.downstream.begin_checkpoint()

    def next_due_ms(self, frozen: int, mono_ms: int) -> int:
        """Return in how many ms the timer can close the checkpoint behind ``frozen``."""
        return self.clock.next_due_ms(self.idleness.passed(frozen) + 1, mono_ms)

    def drains_to(self, frozen: int) -> int:
        """Return up to which checkpoint early records go into the open write batch: the open one (A4), or more (A6).

        The alignment covers all checkpoints that it has reached. A full write batch takes no further one (A9).
        """
        if self.by_timer or not self._inputs.early.bytes or self._commits.pending is not None:
            return frozen + 1
        reached = self._inputs.least_marker()
        if self.batch_is_full:
            reached = min(reached, self._inputs.greatest_checkpoint)
        return max(frozen + 1, reached)

    def next_early(self, frozen: int) -> EarlyFrame | None:
        """Take the early frame that comes next, if one may: none before timers that are left (E10)."""
        early = self._inputs.early
        return early.pop(self.drains_to(frozen)) if early.bytes and not self._timers.left else None

    def _early_is_open(self, frozen: int) -> bool:
        least = self._inputs.early.least_checkpoint()
        return least is not None and least <= self.drains_to(frozen)

    def due(self, frozen: int, mono_ms: int) -> int | None:
        """Return the checkpoint to close now, while none is being committed and all is drained; None: none is due."""
        if self._timers.wait:
            return None
        return self._due_by_timer(frozen, mono_ms) if self.by_timer else self._due_by_alignment(frozen)

    def _due_by_timer(self, frozen: int, mono_ms: int) -> int | None:
        open_checkpoint, boundary = self.idleness.closed(frozen) + 1, self.clock.boundary(mono_ms)
        self._last_is_closed = self.stopping
        due = self.stopping or self.requested or boundary >= open_checkpoint
        if not due and (self.downstream.is_asked or self.downstream.much):
            self._inputs.seen["checkpoints closed for the tasks behind"] += 1
            due = True
        self._inputs.seen["checkpoints closed by a full write batch"] += self.batch_is_full and not due
        if not (due or self.batch_is_full):
            return None
        if not self.stopping and self._leave_out(frozen, boundary):
            return None
        closes = boundary if self.stopping or self.downstream.is_asked else self.idleness.put_off(frozen, boundary)
        return self._observed(frozen) if closes is None else max(open_checkpoint, closes)

    def _observed(self, frozen: int) -> int | None:
        """Return the checkpoint that others have closed, and wait for here; None: there is none."""
        if self.idleness.observed <= frozen:
            return None
        self._inputs.seen["checkpoints closed because others have"] += 1
        return self.idleness.observed

    def _due_by_alignment(self, frozen: int) -> int | None:
        least = self._inputs.least_marker()
        if least <= frozen or (self._timers.left and self._early_is_open(frozen)):
            return None
        waiting = self._inputs.early.least_checkpoint()
        if waiting is not None and waiting <= least:  # the write batch is full, and has nothing of ``waiting`` yet
            self._inputs.seen["checkpoints closed by a full write batch"] += 1
            return waiting - 1
        last = self._commits.committed
        self.idleness.news |= waiting is not None or self._inputs.totals.skipping
        self.idleness.news |= self.at_end and last is not None and not last.at_end
        return None if self._leave_out(frozen, least) else least  # also one that was left out, before the next record

    def _leave_out(self, frozen: int, checkpoint_id: int) -> bool:
        left_out = self.idleness.leave_out(frozen, checkpoint_id)
        self._inputs.seen["checkpoints left out"] += left_out
        return left_out
