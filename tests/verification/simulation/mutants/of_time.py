"""Mistakes in deterministic mode: what is decided, announced, merged, made again and let out (D1 to D5)."""

from dataclasses import replace
from typing import Any

from msgspec import structs

from grete.core.changelog.changelog_fold import ChangelogFold
from grete.core.changelog.ownership import Ownership
from grete.core.deterministic import merge
from grete.core.deterministic.logical_clock import LogicalClock
from grete.core.deterministic.logical_watermarks import NEVER
from grete.core.deterministic.merge import Merge
from grete.core.deterministic.merge_channel import ALL
from grete.core.deterministic.processing import Processing
from grete.core.deterministic.source import Source
from grete.core.deterministic.task import DeterministicCore
from grete.execution.deterministic.outputs import LogicalOutputs
from grete.execution.engine.joint_progress import JointProgress
from grete.protocol.changelog import ChangelogType, decode_changelog_header, decode_input_decision
from tests.verification.simulation.mutants.registry import full_of, mutant
from tests.verification.simulation.plan import Plan, with_settings

_WRONG = ("again", "prefix", "halted", "time", "exactly once", "decision")  # what is made again is not what it was
_killed = full_of("crash", "crash at a boundary", "crash of several", "zombie")


def _streams(plan: Plan) -> bool:
    return bool(plan.topology.streams)


def _merges(plan: Plan) -> bool:
    return any(len(wiring.channels) > 1 for wiring in plan.wirings.values())


def _tells_time(plan: Plan) -> bool:
    return _streams(plan) and plan.timers


def _unfenced(plan: Plan) -> bool:
    return _streams(plan) and not plan.compare_and_append


def _narrow(plan: Plan) -> Plan:
    """Queues that hold one frame of each channel, behind partitions of very different speed."""
    tight = with_settings(plan, early_memory_bytes_max=0, batch_bytes_max=200)
    return replace(tight, reluctance=(0.0, 0.9, 0.5, 0.0, 0.9, 0.0, 0.95))


def _far_ahead(plan: Plan) -> Plan:
    """Two of a task at once, whose progress messages go far ahead."""
    return full_of("twin", "clock jump", "zombie")(with_settings(plan, time_lease_ms=2000, progress_interval_ms=5))


def _restarted_at_once(plan: Plan) -> Plan:
    """Sinks that restart more often than they get on."""
    return full_of("crash", "twin", "crash of several")(_narrow(with_settings(plan, checkpoint_interval_ms=20)))


def _two_at_once(plan: Plan) -> Plan:
    return full_of("zombie", "twin", "slow partition")(plan)


@mutant(LogicalClock, "start", "time", "again", "halted", shows=_unfenced, focus=_far_ahead, world="deterministic")
def no_lease(start: Any) -> Any:
    """A restarted source does not start above what its predecessor has announced (D2)."""
    return lambda self, last_t, lease: start(self, last_t, 0)


@mutant(Source, "done", *_WRONG, shows=_streams, focus=_killed, world="deterministic")
def emit_before_decision(done: Any) -> Any:
    """The outputs of a batch are sent before its input decision is in the changelog (D2)."""

    def mistaken(self: Source) -> Any:
        self.logged_are_valid()
        return done(self)

    return mistaken


@mutant(Source, "logged_are_valid", "core", focus=_killed, world="deterministic")
def valid_without_the_log(_logged_are_valid: Any) -> Any:
    """Each input decision counts when one is verified, also one that was never appended (D2)."""

    def mistaken(self: Source) -> None:
        for batch in self.batches:
            batch.valid = True

    return mistaken


@mutant(Ownership, "appended", *_WRONG, "lease", shows=_unfenced, focus=_two_at_once, world="deterministic")
def decision_not_checked(appended: Any) -> Any:
    """An input decision counts once it is acknowledged, whatever is before it (D2, C3)."""

    def mistaken(self: Ownership, offset: int, highest_own: int, trailing: int = 0) -> Any:
        self.settle(offset, trailing)

    return mistaken


@mutant(ChangelogFold, "feed", *_WRONG, focus=_two_at_once, shows=_unfenced, world="deterministic")
def invalid_decisions_replayed(feed: Any) -> Any:
    """An input decision is replayed though a higher generation is before it (D2, C2)."""

    def mistaken(self: ChangelogFold, offset: int, value: bytes) -> Any:
        kind, generation, _, _ = decode_changelog_header(value)
        if kind is ChangelogType.INPUT_DECISION and generation < self.top:
            self.since.decisions.append(decode_input_decision(value))
        return feed(self, offset, value)

    return mistaken


@mutant(DeterministicCore, "_resume", *_WRONG, "frontier", focus=_killed, world="deterministic")
def decisions_dropped(resume: Any) -> Any:
    """A successor does not replay what its predecessor has decided and not committed (D2)."""

    def mistaken(self: DeterministicCore, commit: Any) -> None:
        resume(self, commit)
        self.source.replay.clear()

    return mistaken


@mutant(DeterministicCore, "_append_next", *_WRONG, "frontier", "position", focus=_killed, world="deterministic")
def decided_during_a_commit(append_next: Any) -> Any:
    """An input decision is appended between a freeze and its commit: a restart reads from the commit (D2, D4)."""

    def mistaken(self: DeterministicCore) -> Any:
        pending = self.commits.pending
        if pending is None or self.changelog.appending is not None or not self.source.batches or self.releases:
            return append_next(self)
        self.commits.pending = None
        actions = append_next(self)
        self.commits.pending = pending
        return actions

    return mistaken


@mutant(Processing, "decided", "time", "lease", "halted", shows=_streams, world="deterministic")
def advanced_over_a_batch(decided: Any) -> Any:
    """A progress message goes out while a batch of a lower time waits for its input decision (D1)."""

    def mistaken(self: Processing, checkpoint_id: int) -> Any:
        actions = decided(self, checkpoint_id)
        return [*actions, *self._outputs.progress(self._time.floor, checkpoint_id)] if self._source.batches else actions

    return mistaken


@mutant(LogicalClock, "advance", "lease", "time", "halted", shows=_streams, world="deterministic")
def advanced_beyond_the_lease(advance: Any) -> Any:
    """A source that is told which time others wait for announces it, whether that is leased or not (D1, D2)."""

    def mistaken(self: LogicalClock, mono_us: int) -> Any:
        wanted = self._wanted
        advance(self, mono_us)
        self.floor = max(self.floor, wanted)
        return self.floor

    return mistaken


@mutant(
    Processing,
    "advance",
    "time",
    "event time",
    "halted",
    shows=_tells_time,
    world="deterministic",
)
def advanced_over_a_watermark(advance: Any) -> Any:
    """A progress message goes out before the watermark of a lower time (D1, E2)."""
    return lambda self, t, checkpoint_id: self._outputs.progress(t, checkpoint_id)


@mutant(Merge, "take", *_WRONG, shows=_merges, world="deterministic")
def order_of_arrival(take: Any) -> Any:
    """A record goes as soon as it is there, whatever other channels may still bring (D1)."""

    def mistaken(self: Merge) -> Any:
        bounds = [channel.bound for channel in self.channels]
        for channel in self.channels:
            channel.bound = (NEVER - 1, ALL, ALL)
        runs, _ = take(self)
        for channel, bound in zip(self.channels, bounds, strict=True):
            channel.bound = bound
        return runs, self.upto

    return mistaken


@mutant(merge, "upto", *_WRONG, "frontier", shows=lambda plan: plan.shape.endswith("and on"), world="deterministic")
def ties_ignored(_upto: Any) -> Any:
    """After a record of some time, none of that time is expected any more (D1)."""
    return lambda bound: bound[0]


@mutant(Merge, "commit", "resume", shows=_merges, world="deterministic")
def resumed_at_position(commit: Any) -> Any:
    """A restart reads on where was read last, not where something is not processed (D3)."""

    def mistaken(self: Merge, checkpoint_id: int) -> Any:
        inputs, frontiers = commit(self, checkpoint_id)
        positions = self.position.values()
        return tuple(structs.replace(i, resume=offset) for i, offset in zip(inputs, positions, strict=True)), frontiers

    return mistaken


@mutant(Merge, "commit", "seq", "digest", "frontier", shows=_merges, world="deterministic")
def received_for_processed(commit: Any) -> Any:
    """A commit says what was received, not what was processed (D3)."""

    def mistaken(self: Merge, checkpoint_id: int) -> Any:
        processed = [channel.processed for channel in self.channels]
        for channel in self.channels:
            channel.processed = channel.received
        found = commit(self, checkpoint_id)
        for channel, seq in zip(self.channels, processed, strict=True):
            channel.processed = seq
        return found

    return mistaken


@mutant(Merge, "frame", *_WRONG, "seq", "error", shows=_streams, focus=_killed, world="deterministic")
def known_records_taken(frame: Any) -> Any:
    """A record that comes again is processed again (D3)."""

    def mistaken(self: Merge, partition: Any, offset: int, header: Any, value: bytes) -> None:
        channel = self._by_key[header.producer, partition]
        channel.bound, channel.generation = (-1, ALL, ALL), header.generation
        channel.received = header.seq - 1
        frame(self, partition, offset, header, value)

    return mistaken


@mutant(Merge, "progress", *_WRONG, shows=_streams, focus=_narrow, world="deterministic")
def observed_while_skipping(progress: Any) -> Any:
    """A progress message behind a frame that was not admitted counts (D1)."""

    def mistaken(self: Merge, partition: Any, offset: int, message: Any) -> None:
        channel = self._by_key[message.header.producer, partition]
        skipped, channel.skip_offset = channel.skip_offset, None
        if message.header.seq <= channel.received + 1 or skipped is not None:
            channel.bound = max(channel.bound, (message.t, message.source, ALL))
        channel.skip_offset = skipped

    return mistaken


@mutant(JointProgress, "leave", *_WRONG, shows=lambda plan: plan.joint, world="deterministic")
def progress_of_the_furthest(leave: Any) -> Any:
    """A joint progress message says of each task what the furthest one of the process has reached (D1)."""

    def mistaken(self: JointProgress) -> None:
        for partition, held in self._held.items():
            t = max(each.t for each in held.values())
            self._held[partition] = {producer: structs.replace(each, t=t) for producer, each in held.items()}
        leave(self)

    return mistaken


@mutant(merge, "progress_of", "liveness", shows=lambda plan: plan.joint, world="deterministic")
def one_row_of_joint_progress(progress_of: Any) -> Any:
    """A reader takes the first row of a joint progress message only (D1)."""
    return lambda kind, message: progress_of(kind, message)[:1]


@mutant(LogicalOutputs, "go_on_after", "release", "exactly once", "outside twice", focus=_killed, world="deterministic")
def released_again(go_on_after: Any) -> Any:
    """A sink lets out again what had left before its restart (D5)."""
    return lambda self, released, digests: None


@mutant(
    LogicalOutputs,
    "save",
    "release",
    "exactly once",
    shows=_streams,
    focus=_restarted_at_once,
    world="deterministic",
)
def released_not_committed(save: Any) -> Any:
    """A commit forgets what has left the job and will be made again only after it (D5)."""

    def mistaken(self: LogicalOutputs, saved: dict[bytes, bytes]) -> None:
        released, self.released = self.released, {}
        save(self, saved)
        self.released = released

    return mistaken
