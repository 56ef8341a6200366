"""TaskCore: the life of one task, aligned or at least once. Events in, actions out.

Theory of operation. A task is STARTING (startup.py), then announces its generation (R2), then RUNNING: the driver feeds
messages while ``wants_input``; the core answers with Process, at most one at a time, and closes checkpoints. Closing
goes in two steps, so that the outputs of a checkpoint carry its checkpoint id: FlushOutputs → OutputFrames → Freeze.
From the freeze on its commit goes its way (commit_pipeline.py) while processing goes on. A rollback marker that rolls
back something in the open write batch makes the task roll back: it finishes the commit in flight, drops the write
batch, claims a new generation (C6), announces it and reads again from the commit.
"""

from collections.abc import Sequence
from functools import partial

from grete.core import actions as do
from grete.core import events as on
from grete.core.aligned.closing import AlignedClosing
from grete.core.aligned.inputs import Inputs
from grete.core.aligned.outputs import AlignedSender
from grete.core.aligned.quiet_markers import next_message
from grete.core.changelog.changelog_fold import extend_rollback_history
from grete.core.changelog.ownership import Ownership
from grete.core.commit_pipeline import CommitPipeline, FrozenCheckpoint
from grete.core.external_inputs import ExternalInputs
from grete.core.graph.graph_check import check_aligned
from grete.core.graph.task_topology import TaskWiring
from grete.core.lifecycle import ALIGNED_TASK, TaskStatus
from grete.core.limits import Limits
from grete.core.sender import Sender
from grete.core.startup import StartUp
from grete.core.task_changelog import TaskChangelog
from grete.protocol.changelog import ChangelogType
from grete.protocol.commit import Commit
from grete.protocol.ids import RollbackEntry


class TaskCore:
    """One task. ``aligned`` is exactly once; otherwise at least once (1.5): by timer, no alignment, no rollback."""

    def __init__(self, task: TaskWiring, limits: Limits, *, aligned: bool) -> None:
        self.task, self.limits, self.aligned = task, limits, aligned
        self.status = ALIGNED_TASK.first
        self.frozen = 0  # the checkpoint closed last; the open one, whose id records carry, is one above it
        self.rollback_history: tuple[RollbackEntry, ...] = ()
        self.inputs = Inputs(task, limits, aligned=aligned)
        self.seen = self.inputs.seen
        self.external = ExternalInputs(task.external, task.bootstrap, task.starts)
        self.sender = Sender(task.producer, task.outputs)
        self.ownership = Ownership(task.changelog)
        self.outputs = AlignedSender(task, self.sender, self.ownership)
        self.start_up = StartUp(task.name, task.changelog, self.ownership, partial(check_aligned, task))
        self.commits = CommitPipeline(task, self.ownership, self.sender, limits.changelog_retention_ms)
        self.changelog = TaskChangelog(self.start_up, self.ownership, self.commits, self.seen)
        self.closing = AlignedClosing(task, limits, self.inputs, self.external, self.commits, aligned=aligned)
        self.idleness = self.closing.idleness
        self._flushing: int | None = None  # checkpoint to freeze when the outputs are flushed
        self._processing = False
        self._told_last: tuple[int, int] | None = None  # generation and checkpoint with which it stops
        self._mono_ms = 0

    # --- what the driver may ask ---

    @property
    def generation(self) -> int:
        """Return the generation that this process has claimed."""
        return self.ownership.generation

    @property
    def wants_input(self) -> bool:
        """Whether the next message or external batch may be fed."""
        return (
            self.status is TaskStatus.RUNNING
            and self.at_rest
            and not self.inputs.taken_back
            and not (self.closing.stopping and self.task.is_source)
            and not (self.closing.by_timer and self.closing.batch_is_full and self.commits.pending is not None)
        )

    @property
    def at_rest(self) -> bool:
        """Whether nothing is being processed, and no checkpoint is being closed."""
        return not self._processing and self._flushing is None

    @property
    def waits_for_tasks(self) -> bool:
        """Whether it waits for the checkpoint markers of other tasks: at least once it never does."""
        return self.aligned

    @property
    def reached_t(self) -> int:
        """The time in µs of the last checkpoint that was closed or left out."""
        return 1_000 * self.idleness.closed(self.frozen)

    def due_in_ms(self, mono_ms: int) -> int:
        """Return in how many ms a Tick can close a checkpoint; a minute if this task closes by its alignment only."""
        if self.status is TaskStatus.RUNNING and self.closing.by_timer and self.commits.pending is None:
            return self.closing.next_due_ms(self.frozen, mono_ms)
        return 60_000

    @property
    def observed_checkpoint(self) -> int | None:
        """The greatest checkpoint of which a marker has come, while it closes one, too; None: more may come unseen."""
        reads = self.status is TaskStatus.RUNNING and not self.inputs.taken_back
        return self.inputs.totals.greatest_marker if reads and not self.idleness.news else None

    @property
    def covered_t(self) -> int:
        """The time in µs up to which the last commit has all of the deterministic channels; 0: not known."""
        frontiers = self.inputs.frontiers()
        if self.idleness.news or self.commits.pending is not None or frontiers is None:
            return 0
        return min(frontier.t for frontier in frontiers.frontiers)

    # --- dispatch ---

    def step(self, event: on.Event) -> Sequence[do.Action]:
        """Take an event, return what must be done, in order. Raises Fenced, TransientError, Halted, ConfigError."""
        actions: list[do.Action] = []
        match event:
            case on.Message() | on.Messages():
                actions = self._read(event)
            case on.Processed():
                self._processing, self.closing.open_bytes = False, event.open_bytes
            case on.OutputFrames():
                actions = self._output_frames(event)
            case on.Acked():
                self.sender.acked = event.token
                actions = self._on_acked()
            case on.ExternalProcessed():
                self.external.position[event.partition] = event.next_offset
                self.external.ended[event.partition] = event.ended
                self.closing.open_bytes, self.idleness.news = event.open_bytes, True
            case on.Tick() | on.CheckpointObserved() | on.Fired():
                self._take_time(event)
            case on.DataWritten():
                actions = self.commits.data_written(event)
            case on.ChangelogAppended():
                actions = self._appended(event)
            case on.Applied():
                actions = self.commits.applied()
                actions += self._announce() if self.status is TaskStatus.GENESIS else []
            case on.ChangelogRow() | on.ChangelogEnd() | on.OutcomeFound():
                actions = self._valid(*self.changelog.read(event))
            case on.InputGone(error):
                return [do.ReadChangelog(self.ownership.doubted(self.generation, error))]
            case on.Stop():
                self.closing.stopping = True
            case on.Start():
                self._mono_ms = event.mono_ms
                return self.start_up.begin(event)
            case (
                on.InputRead() | on.ExternalBatch() | on.InputIdle() | on.Ran()
            ):  # pragma: no branch  # the last one: mypy holds it
                raise AssertionError(f"{self.task.name}: {event} belongs to deterministic mode")
        if self.status is TaskStatus.RUNNING:
            actions += self._pump()
        return actions

    def _take_time(self, event: on.Tick | on.CheckpointObserved | on.Fired) -> None:
        if isinstance(event, on.Fired):
            self.idleness.news, self._flushing = True, None if self.closing.fired(event) else self._flushing
            return
        self._mono_ms = event.mono_ms
        if isinstance(event, on.CheckpointObserved):
            self.idleness.observe(event.checkpoint_id, sees_next=event.sees_next)
            return
        self.closing.open_bytes = event.open_bytes
        self.closing.downstream.ask(event.asked, self.frozen)
        self.closing.requested |= event.requested
        self.idleness.news |= event.open_bytes > 0 or event.requested  # a timer has fired

    def _pump(self) -> list[do.Action]:
        """Return the actions that need no other message: buffered frames (A4), an alignment, a timer, a rollback."""
        if not self.at_rest:
            return []
        if self.inputs.taken_back:
            return self._begin_rollback() if self.commits.pending is None else []
        if (frame := self.closing.next_early(self.frozen)) is not None:
            return self._process(self.inputs.include(frame))
        if self.commits.pending is not None:
            return []
        return self._exit() if self.closing.stopped(self.frozen) else self._close_due()

    # --- the own changelog ---

    def _appended(self, event: on.ChangelogAppended) -> list[do.Action]:
        self._mono_ms = event.mono_ms
        if not event.fenced:
            self.closing.clock.anchor(event.append_time_ms, event.mono_ms)
        return self._valid(*self.changelog.appended(event))

    def _valid(self, actions: list[do.Action], kind: ChangelogType | None) -> list[do.Action]:
        """Go on from an own message that is valid: the claim of the start, or that of a rollback."""
        if kind is ChangelogType.CLAIM:
            actions += self._started() if self.status is TaskStatus.STARTING else self._rolled_back()
        return actions

    # --- start ---

    def _started(self) -> list[do.Action]:
        """Ownership is settled, the store agrees with the last commit: go on from it, or make the genesis (A2)."""
        start = self.start_up
        self.rollback_history = start.fold.rollback_history
        if start.fold.last is None:
            start.check_new(self.inputs.position)
            self.external.begin(start.bounds)
            self._become(TaskStatus.GENESIS)
            return self._freeze(0)
        self.commits.resume(start.fold, self.closing.clock.now(self._mono_ms))
        self._resume(start.fold.last)
        start.check_resumed(self.inputs.position | self.external.position)
        return self._announce()

    def _resume(self, commit: Commit) -> None:
        """Set everything that is a function of the last commit."""
        self.frozen, self.idleness.news = commit.checkpoint_id, True
        self.closing.resume()
        self.external.resume(commit, self.start_up.bounds)
        self.sender.resume(commit)
        self.inputs.reset(commit)
        self._flushing, self._processing = None, False

    def _announce(self) -> list[do.Action]:
        """Send the rollback marker of this generation everywhere (R2); records follow when it is acknowledged."""
        self._become(TaskStatus.ANNOUNCING)
        return self.outputs.announce(self.frozen, self.rollback_history) + self._on_acked()

    def _on_acked(self) -> list[do.Action]:
        if self.status is TaskStatus.ANNOUNCING and self.sender.all_acked:
            self._become(TaskStatus.RUNNING)
            positions = (*self.inputs.position.items(), *self.external.position.items())
            return [do.Seek(partition, offset) for partition, offset in positions]
        return self.changelog.commit()

    def _become(self, status: TaskStatus) -> None:
        self.status = ALIGNED_TASK.change(self.task.name, self.status, status)

    # --- input and output ---

    def _message(self, event: on.Message) -> list[do.Action]:
        assert self.wants_input, f"{self.task.name}: a message was fed in {self.status}"
        assert not self.external.read_first, f"{self.task.name}: {event.partition} was read before its turn"
        action = self.inputs.message(event, self.frozen)
        self._processing = isinstance(action, do.Process)
        self.idleness.news |= self._processing or not self.aligned  # no markers come then
        self.seen["rollbacks during a commit"] += self.inputs.taken_back and self.commits.pending is not None
        return [] if action is None else [action]

    def _read(self, event: on.Message | on.Messages) -> list[do.Action]:
        message = next_message(self.inputs, event, self.frozen, stopping=self.closing.stopping)
        return [] if message is None else self._message(message)

    def _process(self, action: do.Process) -> list[do.Action]:
        self._processing = self.idleness.news = True
        return [action]

    def _output_frames(self, event: on.OutputFrames) -> list[do.Action]:
        self.closing.downstream.sent(event.frames if self.aligned else ())  # at least once no task holds a checkpoint
        actions = self.outputs.send(event, self.frozen + 1, timed=self.status is TaskStatus.RUNNING)
        self.idleness.news |= bool(event.frames) or event.watermark is not None
        if self._flushing is not None:
            checkpoint_id, self._flushing = self._flushing, None
            actions += self._freeze(checkpoint_id)
        return actions

    # --- closing a checkpoint ---

    def _close_due(self) -> list[do.Action]:
        """Close the checkpoint that is due, if any: its last outputs come first (A8)."""
        checkpoint_id = self.closing.due(self.frozen, self._mono_ms)
        if checkpoint_id is None:
            return []
        assert checkpoint_id > self.frozen and self.commits.pending is None
        self._flushing = checkpoint_id
        return [do.FlushOutputs()]

    def _freeze(self, checkpoint_id: int) -> list[do.Action]:
        """Close the checkpoint, outputs and all: its commit begins (A8)."""
        several = 0 < self.frozen < checkpoint_id - self.limits.checkpoint_interval_ms
        self.seen["commits over several checkpoints"] += several
        inputs = self.inputs.commit(checkpoint_id)
        self.frozen = checkpoint_id
        self.idleness.froze(checkpoint_id)
        self.closing.begin_checkpoint()
        captured = FrozenCheckpoint(
            checkpoint_id=checkpoint_id,
            last_token=self.sender.token,
            rollback_history=self.rollback_history,
            inputs=inputs,
            external=self.external.commit(),
            outputs=self.sender.commit(),
            known=self.inputs.rollbacks.commit(),
            at_end=self.closing.at_end,
            deterministic=self.inputs.frontiers(),
            genesis=self.status is TaskStatus.GENESIS,
            marks=self.aligned,
            with_outputs=True,
        )
        self.commits.begin(captured)
        actions: list[do.Action] = [do.Freeze(checkpoint_id)]
        if self.inputs.totals.skipping:  # back to the positions of this commit, as after a restart (A5)
            self.seen["seeks back"] += 1
            self.inputs.rewind(inputs)
            actions += [do.ClearSpill(), *(do.Seek(*at) for at in self.inputs.position.items())]
        return actions + self.changelog.commit()

    # --- rollback, stop ---

    def _begin_rollback(self) -> list[do.Action]:
        """Drop the open write batch and claim the next generation (R4, C6)."""
        self.seen["rollbacks"] += 1
        self._become(TaskStatus.RECLAIMING)
        return [do.DropOpen(), do.ClearSpill(), self.changelog.claim()]

    def _rolled_back(self) -> list[do.Action]:
        commit = self.commits.committed
        assert commit is not None
        rolled_back = RollbackEntry(self.generation, commit.checkpoint_id)
        self.rollback_history = extend_rollback_history(self.rollback_history, rolled_back)
        self._resume(commit)
        return self._announce()

    def _exit(self) -> list[do.Action]:
        told, self._told_last = self._told_last, (self.generation, self.frozen)
        if self.aligned and told != self._told_last and (markers := self.commits.last_markers()):
            return markers
        if not self.sender.all_acked:
            return []
        self._become(TaskStatus.STOPPED)
        return [do.Exit(f"stopped at checkpoint {self.frozen}")]

    # --- at each commit, and in tests and the simulator behind each step ---

    def check_invariants(self) -> None:
        """Raise AssertionError unless this holds between any two steps."""
        self.sender.check_invariants()
        self.changelog.check_invariants(self.status, self.frozen)
        self.inputs.check_invariants(self.frozen)
        self.external.check_invariants()
        status, pending = self.status, self.commits.pending
        assert status is TaskStatus.RUNNING or not (self._processing or self._flushing), status
        if self._flushing is not None:
            assert self._flushing > self.frozen and pending is None and not self._processing, (self._flushing, pending)
        assert self.idleness.news or not self.inputs.included, self.inputs.included
        assert not (self.idleness.covered and self.aligned and self.task.outputs), self.idleness.covered
        if self.inputs.taken_back:
            assert self.aligned and status in (TaskStatus.RUNNING, TaskStatus.RECLAIMING), status
        if status in (TaskStatus.ANNOUNCING, TaskStatus.RUNNING):
            generation, restored = self.rollback_history[-1]
            assert list(self.rollback_history) == sorted(self.rollback_history), self.rollback_history
            assert generation == self.generation and restored <= self.frozen, (self.rollback_history, self.generation)
