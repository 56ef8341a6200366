"""DeterministicCore: the life of one task whose output is a function of its input log alone (D1-D5).

Theory of operation. No checkpoints span tasks, there are no markers and no rollback: each task commits by its own timer
(closing.py), and what is lost in a crash is made again, the same. A source writes to the log first: it appends which
records it takes at which logical time as an input decision, and sends their outputs once that is known to be valid (C2,
C3). All others merge their channels by logical time (merge.py). A sink sends its outputs in order, each time with an
output release in one transaction. Of these messages, commits and time leases one is on its way at a time (appends.py).
From a freeze on nothing is decided or released before the commit is in the changelog: a restart reads from there.
"""

from collections.abc import Sequence
from functools import partial
from itertools import starmap

from grete.core import actions as do
from grete.core import events as on
from grete.core.changelog.ownership import Ownership
from grete.core.commit_pipeline import CommitPipeline, FrozenCheckpoint
from grete.core.deterministic.appends import Appends
from grete.core.deterministic.call_results import CallResults
from grete.core.deterministic.closing import Closing
from grete.core.deterministic.logical_clock import LogicalClock
from grete.core.deterministic.merge import Merge
from grete.core.deterministic.outputs import LogicalSender
from grete.core.deterministic.processing import Processing, Quiescence
from grete.core.deterministic.source import Source
from grete.core.deterministic.write_ahead import WriteAhead
from grete.core.external_inputs import ExternalInputs
from grete.core.graph.graph_check import check_deterministic
from grete.core.graph.task_topology import TaskWiring
from grete.core.lifecycle import DETERMINISTIC_TASK, TaskStatus
from grete.core.limits import Limits
from grete.core.sender import Sender
from grete.core.startup import StartUp
from grete.core.task_changelog import TaskChangelog
from grete.protocol.changelog import ChangelogType
from grete.protocol.commit import Commit, DeterministicCommit


class DeterministicCore:
    """One task. ``releases``: records for external topics wait for output releases; else they leave at once (D5).

    ``durable``: input decisions and time leases survive a power loss before anything comes of them.
    ``pace_ms``: of progress that is announced with that of other tasks; 0: it is sent alone.
    """

    def __init__(
        self, task: TaskWiring, limits: Limits, *, releases: bool, durable: bool = False, pace_ms: int = 0
    ) -> None:
        self.task, self.releases = task, releases
        self.status = DETERMINISTIC_TASK.first
        self.frozen = self._mono_ms = self._mono_us = 0  # the checkpoint closed last, and the time now
        self.inputs = self.merge = Merge(task.name, task.channels, limits.early_memory_bytes_max)
        self.seen, self.external = self.merge.seen, ExternalInputs(task.external, task.bootstrap, task.starts)
        self.time = LogicalClock(max(limits.progress_interval_ms, pace_ms), limits.time_lease_ms)
        self.source = Source(task.name, self.external, self.time)
        self.sender = Sender(task.producer, task.outputs)
        self.closing, self.ownership = Closing(limits), Ownership(task.changelog)
        self.idleness = self.closing.idleness
        self.outputs = LogicalSender(task, self.sender, self.ownership, releases=releases, pace_us=pace_ms * 1_000)
        self.start_up = StartUp(task.name, task.changelog, self.ownership, partial(check_deterministic, task))
        self.commits = CommitPipeline(task, self.ownership, self.sender, limits.changelog_retention_ms)
        self.ahead = WriteAhead(self.commits, self.closing, self.seen)
        self.results = CallResults()
        self.changelog = TaskChangelog(self.start_up, self.ownership, self.commits, self.seen)
        made = self.outputs, self.results
        self._appends = Appends(self.changelog, self.time, self.source, *made, releases=releases, durable=durable)
        self.processing = Processing(task, self.external, self.source, self.merge, self.time, self.outputs)
        self.rest = Quiescence(self.processing, self.source, self.results, self.closing, self.ahead)

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
            and not (self.processing.active or self.closing.stopping)
            and self.source.has_room
            and not self.ahead.has_no_room
            and not (self.source.batches and self._closes)  # a checkpoint is frozen between batches
        )

    @property
    def fires(self) -> bool:
        """Whether the next of the timers that are left may fire (E10)."""
        return self.status is TaskStatus.RUNNING and self.rest.fires(closes=self._closes)

    @property
    def gathers(self) -> bool:
        """Whether what could be released waits for more: only while more is certain to come at once."""
        return self.releases and self.source.gathers and (self.processing.active or self.wants_input)

    @property
    def awaits_answers(self) -> bool:
        """Whether it matters when sends are acknowledged: only for commits and at the end."""
        return self.closing.stopping or self.commits.pending is not None

    def due_in_ms(self, mono_ms: float) -> float:
        """Return in how many ms a Tick can do something; a minute if nothing depends on time."""
        due = 60_000.0
        if self.status is TaskStatus.RUNNING and self.rest.may_close and not self.ahead.committing:
            due = self.closing.next_due_ms(self.frozen, mono_ms)
        if self.status is TaskStatus.RUNNING and self.at_rest:
            mono_us = int(mono_ms * 1000)
            if self._emits_progress(mono_us):
                due = min(due, self.time.next_emit_ms(mono_us))
            elif self.task.is_source and not self.closing.last_is_closed:
                due = min(due, self.time.timer_in_ms(mono_us))
        return due

    @property
    def covered_t(self) -> int:
        """The time in µs up to which the last commit has all of the channels; 0: not known."""
        return 0 if self.idleness.news or self.ahead.committing else self.processing.covered_t

    @property
    def at_rest(self) -> bool:
        """Whether nothing is being processed: what is in the write batch was also sent."""
        return self.rest.at_rest

    @property
    def waits_for_tasks(self) -> bool:
        """Whether it waits for the logical time of its channels: not once it is asked to stop."""
        return not self.closing.stopping

    @property
    def reached_t(self) -> int:
        """The time in µs up to which nothing is still to come in any channel; -1: it has none."""
        return self.merge.upto if self.task.channels else -1

    @property
    def _closes(self) -> bool:
        """Whether a checkpoint is to be frozen as soon as all is at rest."""
        return self.rest.closes(self.frozen, self._mono_ms)

    def _emits_progress(self, mono_us: int) -> bool:
        """Tell whether the task must advance logical time: a source that other tasks read, or whose timer is due."""
        is_awaited = bool(self.task.outputs) or self.time.timer_is_due(mono_us)
        return self.task.is_source and not self.closing.last_is_closed and is_awaited

    # --- dispatch ---

    def step(self, event: on.Event) -> Sequence[do.Action]:
        """Take an event, return what must be done, in order. Raises Fenced, TransientError, Halted, ConfigError."""
        actions: list[do.Action] = []
        match event:
            case on.Message():
                self.closing.read(len(event.value))
                self.merge.message(event)
                return []  # what it brings is taken when all that was read is here
            case on.InputRead():
                self.source.more = False
            case on.Ran():
                actions = self._ran(event)
            case on.ExternalBatch() | on.InputIdle():
                actions = self._decide(event)
            case on.Acked():
                self.sender.acked = event.token
                return self._pump() if self.awaits_answers else []
            case on.Tick():
                self._mono_ms = event.mono_ms
                self.closing.opened(event.open_bytes)
                self.closing.requested |= event.requested
                self._mono_us = event.mono_us or event.mono_ms * 1000
                self.time.observe(event.observed, self._mono_us)
                actions = self._emit_progress()
            case on.ExternalProcessed():
                self.external.ended[event.partition] = event.ended
                self.idleness.news = True
            case on.DataWritten():
                actions = self.commits.data_written(event)
                self.ahead.sent(more=event.more)
            case on.ChangelogAppended():
                actions = self._appended(event)
            case on.Applied():
                actions = self._applied()
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
                on.Messages() | on.Processed() | on.Fired() | on.OutputFrames() | on.CheckpointObserved()
            ):  # pragma: no branch
                raise AssertionError(f"{self.task.name}: {event} does not belong in deterministic mode")
        return actions + self._pump()

    def _pump(self) -> list[do.Action]:
        """Return the next actions: a message for the changelog, a commit, the next records, a progress message."""
        if self.status not in (TaskStatus.RUNNING, TaskStatus.GENESIS) or self.ownership.in_doubt:
            return []
        actions = self._append_next()
        if self.status is TaskStatus.RUNNING:
            actions += self.ahead.next(closes=self._closes)
        if self.status is TaskStatus.RUNNING and (self.rest.may_close or self.rest.ends_replay):
            if self._closes and (self.closing.last_is_closed or self.rest.ends_replay):
                return actions + self._exit()
            if self._closes:
                self.closing.last_is_closed = self.closing.stopping
                actions += self._freeze(self.closing.checkpoint_id(self.frozen, self._mono_ms))
            if self.at_rest and self.task.channels and not (self.closing.last_is_closed or self.ahead.has_no_room):
                actions += self.processing.take(self.frozen + 1)
        return actions

    # --- start ---

    def _started(self) -> list[do.Action]:
        """Ownership is settled, the store agrees with the last commit: go on from it, or make the genesis (A2)."""
        start, last = self.start_up, self.start_up.fold.last
        if last is None:
            start.check_new(self.merge.position)
            self.external.begin(start.bounds)
            self._become(TaskStatus.GENESIS)
            return self._freeze(0)
        self.commits.resume(start.fold, self.closing.clock.now(self._mono_ms))
        self._resume(last)
        start.check_resumed(self.merge.position | self.external.position)
        if last.bulk_write_id is None or self.source.replay:
            return self._go_on()
        self._become(TaskStatus.GENESIS)  # a bulk write does not know where the outputs of this job will begin (D5)
        return self._freeze(self.closing.checkpoint_id(self.frozen, self._mono_ms))

    def _resume(self, commit: Commit) -> None:
        """Set everything that is a function of the last commit, and of what was decided since."""
        since, deterministic = self.start_up.fold.since, commit.deterministic
        assert deterministic is not None
        self.frozen, self.idleness.news = commit.checkpoint_id, True
        self.external.resume(commit, self.start_up.bounds)
        self.sender.resume(commit)
        self.merge.reset(commit)
        self.time.start(self.source.resume(deterministic, since.decisions), max(since.lease, deterministic.lease))

    def _go_on(self) -> list[do.Action]:
        """Take up the work from the last commit."""
        self._become(TaskStatus.RUNNING)
        return [*starmap(do.Seek, self.merge.position.items()), *self.processing.begin(self.frozen + 1)]

    def _become(self, status: TaskStatus) -> None:
        self.status = DETERMINISTIC_TASK.change(self.task.name, self.status, status)

    # --- input and output ---

    def _decide(self, event: on.ExternalBatch | on.InputIdle) -> list[do.Action]:
        """Take rows, or that an input is idle: the decision goes to the log while it is processed."""
        assert self.wants_input, f"{self.task.name}: a batch was fed in {self.status}"
        assert not self.external.waits(event.partition), f"{self.task.name}: {event.partition} was read before its turn"
        self._mono_us, self.idleness.news = event.mono_us, True
        process = self.processing.decide(event)
        return [*self._append_next(), process]

    def _ran(self, event: on.Ran) -> list[do.Action]:
        self.closing.open_bytes, self.idleness.news = event.open_bytes, True
        if event.calls:
            self.results.hold(event)
            self.closing.read(sum(note.size for note in event.calls))  # a successor has them in memory
            return []
        return self.processing.ran(event, self.frozen + 1)

    def _emit_progress(self) -> list[do.Action]:
        """Advance logical time where no record does it."""
        may_emit = self.status is TaskStatus.RUNNING and self.at_rest and self._emits_progress(self._mono_us)
        if not (may_emit and self.time.emit_due(self._mono_us)):
            return []
        return self.processing.advance(self.time.advance(self._mono_us), self.frozen + 1)

    # --- the own changelog ---

    def _append_next(self) -> list[do.Action]:
        running, leases = self.status is TaskStatus.RUNNING, self._emits_progress(self._mono_us)
        return self._appends.next(self._mono_us, running=running, leases=leases, gathers=self.gathers)

    def _appended(self, event: on.ChangelogAppended) -> list[do.Action]:
        self._mono_ms, self._mono_us = event.mono_ms, event.mono_us or event.mono_ms * 1000
        if not event.fenced:
            self.closing.anchor(event.append_time_ms, event.mono_ms)
            self.time.anchor(event.append_time_ms, self._mono_us)
            if self.changelog.appending is ChangelogType.COMMIT:
                self.closing.committed(event.mono_ms)
        return self._valid(*self.changelog.appended(event))

    def _valid(self, actions: list[do.Action], kind: ChangelogType | None) -> list[do.Action]:
        """Go on from an own message that is valid, the last one that was appended; ``kind`` None: none is, for now."""
        if kind is ChangelogType.CLAIM:
            return actions + self._started()
        if kind in {None, ChangelogType.COMMIT}:
            return actions if kind is None else actions + self.processing.committed()
        self.time.lease = self.time.lease_sent
        self.source.logged_are_valid()
        actions += self.processing.decided(self.frozen + 1)
        ran = self.results.valid()
        return actions if ran is None else actions + self.processing.ran(ran, self.frozen + 1)

    # --- commit, stop ---

    def _freeze(self, checkpoint_id: int) -> list[do.Action]:
        self.ahead.closed()
        self.processing.cut()
        inputs, frontiers = self.merge.commit(checkpoint_id)
        self.seen["checkpoints closed by untrimmed input"] += self.closing.input_is_long
        self.closing.frozen(self._mono_ms)
        self.frozen, source = checkpoint_id, self.source
        self.commits.begin(
            FrozenCheckpoint(
                checkpoint_id=checkpoint_id,
                last_token=self.sender.token,
                rollback_history=self.start_up.fold.rollback_history,
                inputs=inputs,
                external=self.external.commit(),
                outputs=self.sender.commit(),
                known=(),
                at_end=self.task.is_source and self.external.all_ended,
                deterministic=DeterministicCommit(source.taken, source.last_t, self.time.lease_sent, frontiers),
                genesis=self.status is TaskStatus.GENESIS,
                held=self.outputs.release()[0],
            )
        )
        return [do.Freeze(checkpoint_id), *self._append_next()]

    def _applied(self) -> list[do.Action]:
        self.closing.applied()
        actions = self.commits.applied()
        return actions + self._go_on() if self.status is TaskStatus.GENESIS else actions

    def _exit(self) -> list[do.Action]:
        if not self.sender.all_acked or self.changelog.appending is not None or self.outputs.held:
            return []  # of a replay that ends; the last commit has waited for all of it
        self._become(TaskStatus.STOPPED)
        return [do.Exit(f"stopped at checkpoint {self.frozen}")]

    # --- at each commit, and in tests and the simulator behind each step ---

    def check_invariants(self) -> None:
        """Raise AssertionError unless this holds between any two steps."""
        self.sender.check_invariants()
        self.merge.check_invariants()
        self.changelog.check_invariants(self.status, self.frozen)
        self.source.check_invariants(committing=self._appends.committing)
        self.processing.check_invariants(running=self.status is TaskStatus.RUNNING)
        self.external.check_invariants()
        assert self.processing.active or not self.results.waits
