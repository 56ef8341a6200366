"""Mistakes in reading: what is rolled back, early, skipped or seen already (A3 to A6, R3, R4)."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from msgspec import structs

from grete.core.aligned import rollbacks as module
from grete.core.aligned.channel import Channel
from grete.core.aligned.channel_totals import ChannelTotals
from grete.core.aligned.early_buffer import EarlyBuffer
from grete.core.aligned.inputs import Inputs
from grete.core.aligned.rollbacks import Rollbacks
from grete.core.aligned.task import TaskCore
from grete.core.graph.task_topology import TaskWiring
from grete.core.limits import Limits
from grete.protocol.commit import InputCommit
from grete.protocol.ids import RollbackEntry, TopicPartition, split_producer_id
from tests.verification.simulation.builds import Builds
from tests.verification.simulation.mutants.registry import full_of, mutant
from tests.verification.simulation.plan import Plan, with_settings


def _aligned(plan: Plan) -> bool:
    return plan.aligned and bool(plan.topology.streams)


def _narrows(plan: Plan) -> bool:
    """Tell whether a stage has fewer tasks than one that it reads."""
    stages = plan.topology.stages
    edges = plan.topology.streams
    return plan.aligned and any(stages[e.producer].partitions > stages[e.consumer].partitions for e in edges)


def _skips(plan: Plan) -> bool:
    return _aligned(plan) and plan.settings.early_bytes_max < 1000


def _wide(plan: Plan) -> bool:
    return plan.aligned and any(len({p for _, p in w.channels}) > 1 for w in plan.wirings.values())


def _crowded(plan: Plan) -> Plan:
    """Early buffers that hold some of what comes, behind partitions of very different speed."""
    tight = with_settings(plan, early_bytes_max=500, early_memory_bytes_max=150, batch_bytes_max=200)
    return replace(tight, reluctance=(0.0, 0.9, 0.5, 0.0, 0.9, 0.0, 0.95))


def _many_lives(plan: Plan) -> Plan:
    """Tasks that die and are replaced often, while what they have sent comes late."""
    busy = full_of("crash", "zombie", "twin", "slow partition", "crash of several")(plan)
    return replace(busy, reluctance=(0.9, 0.0, 0.95, 0.0, 0.9), unkind=replace(plan.unkind, lag=0.0))


def _tight(plan: Plan) -> bool:
    return _aligned(plan) and plan.tight_batch


def _several_builds(plan: Plan) -> bool:
    return bool(plan.topology.streams) and Builds(plan).at_work and len(plan.topology.fingerprints()) > 1


@mutant(Inputs, "__init__", "halted", shows=_several_builds)
def only_the_own_graph_taken(init: Any) -> Any:
    """A producer of the code before a stage was added is taken for one of another job."""

    def mistaken(self: Inputs, task: TaskWiring, *given: Any, **more: Any) -> None:
        init(self, task, *given, **more)
        self.rollbacks.fingerprints = frozenset({task.fingerprint})

    return mistaken


@mutant(EarlyBuffer, "_account", "core", shows=_aligned)
def early_bytes_leaked(_account: Any) -> Any:
    """Frames that leave the early buffer are still counted, so the buffer fills up."""
    return lambda self, frame: None


@mutant(Inputs, "reset", "duplicate", "halted", "rolled back", "lost", shows=_aligned)
def buffers_kept(reset: Any) -> Any:
    """A rollback keeps the early buffer."""

    def mistaken(self: Inputs, commit: Any) -> None:
        kept, self.early = self.early, EarlyBuffer(self.early.memory_bytes_max, self.early.bytes_max)
        reset(self, commit)
        self.early = kept

    return mistaken


@mutant(Inputs, "rewind", "lost", "closure", "halted", "resume", shows=_wide, focus=_crowded)
def markers_kept(rewind: Any) -> Any:
    """Going back keeps what the markers have proved."""

    def mistaken(self: Inputs, inputs: Sequence[InputCommit]) -> None:
        kept = {key: channel.marker for key, channel in self.channels.items()}
        rewind(self, inputs)
        for key, marker in kept.items():
            self.channels[key].marker = max(marker, self.channels[key].marker)

    return mistaken


@mutant(ChannelTotals, "forget", "core", "closure", "lost", shows=_aligned)
def totals_kept(forget: Any) -> Any:
    """Going back keeps the least marker that was reckoned last (A6)."""

    def mistaken(self: ChannelTotals) -> None:
        if not hasattr(self, "_open"):
            forget(self)

    return mistaken


@mutant(ChannelTotals, "proves", "core", "closure", "liveness", shows=_aligned)
def markers_uncounted(_proves: Any) -> Any:
    """A marker that rises stays counted among the least ones (A6)."""
    return lambda self, channel, *proved: channel.proves(*proved)


@mutant(Channel, "expects", "at end", "liveness", "core", "checkpoint", shows=_aligned)
def ends_overlooked(expects: Any) -> Any:
    """Of markers that are taken together none says that a producer's inputs have ended, or have not (A2b)."""
    return lambda self, generation, seq, at_end: expects(self, generation, seq, self.ended)


@mutant(module, "is_rolled_back", "rolled back", "halted", "lost", "duplicate", shows=_aligned)
def newest_generation_only(is_rolled_back: Any) -> Any:
    """Only the newest rollback marker decides what is rolled back, not the whole rollback history (R3)."""

    def mistaken(rollback_history: tuple[RollbackEntry, ...], generation: int, checkpoint_id: int) -> bool:
        return (
            bool(rollback_history)
            and rollback_history[-1].generation > generation
            and rollback_history[-1].checkpoint_id < checkpoint_id
        )

    return mistaken


@mutant(Inputs, "least_marker", "closure", "lost", shows=_aligned)
def alignment_by_count(least_marker: Any) -> Any:
    """The alignment counts markers instead of asking for one of each channel (A6)."""

    def mistaken(self: Inputs) -> int:
        markers = [channel.marker for channel in self.channels.values()]
        count = self.seen["records"] * 0 + len([m for m in markers if m > min(markers)])
        return max(markers) if count >= len(markers) / 2 else int(least_marker(self))

    return mistaken


def _least_marker_of(inputs: Inputs, tasks: int) -> int:
    return min(
        channel.marker for (producer, _), channel in inputs.channels.items() if split_producer_id(producer)[1] < tasks
    )


@mutant(Inputs, "__init__", "closure", "lost", shows=_narrows)
def alignment_of_the_own_number(init: Any) -> Any:
    """A task awaits the markers of as many producers as its own stage has tasks, not of all of them (A6)."""

    def mistaken(self: Any, task: TaskWiring, limits: Limits, *, aligned: bool) -> None:
        init(self, task, limits, aligned=aligned)
        self.least_marker = partial(_least_marker_of, self, task.tasks)

    return mistaken


@mutant(Inputs, "commit", "resume", shows=_aligned)
def resume_at_position(commit: Any) -> Any:
    """A commit resumes where the reader is, in spite of what waits in the early buffer (A7)."""

    def mistaken(self: Inputs, checkpoint_id: int) -> tuple[InputCommit, ...]:
        inputs: tuple[InputCommit, ...] = commit(self, checkpoint_id)
        return tuple(structs.replace(i, resume=self.position[TopicPartition(i.topic, i.partition)]) for i in inputs)

    return mistaken


@mutant(Channel, "commit", "resume", shows=_skips, focus=_crowded)
def skipped_frame_left_behind(commit: Any) -> Any:
    """A checkpoint that closes before the task goes back resumes behind a frame that was not admitted (A5, A7)."""

    def mistaken(self: Channel, checkpoint_id: int, position: int) -> Any:
        skipped, self.skipped = self.skipped, None
        found = commit(self, checkpoint_id, position)
        self.skipped = skipped
        return found

    return mistaken


@mutant(Channel, "commit", "resume", shows=_aligned)
def later_marker_left_behind(commit: Any) -> Any:
    """A commit resumes behind the marker of a later checkpoint, which a restart does not read (A6, A7)."""

    def mistaken(self: Channel, checkpoint_id: int, position: int) -> Any:
        self.future = []
        return commit(self, checkpoint_id, position)

    return mistaken


@mutant(module, "is_rolled_back", "rolled back", "halted", "lost", "duplicate", shows=_aligned, focus=_many_lives)
def last_two_generations_only(is_rolled_back: Any) -> Any:
    """Of three incarnations or more the newest two decide what is rolled back, though an older one still sends (R3)."""
    return lambda history, generation, checkpoint_id: is_rolled_back(history[-2:], generation, checkpoint_id)


@mutant(Channel, "proves", "lost", "resume", "halted", shows=_skips)
def skip_marker_uncapped(proves: Any) -> Any:
    """The markers of a channel that skips count in full (A5)."""

    def mistaken(self: Channel, checkpoint_id: int, offset: int, frozen: int) -> None:
        self.marker = max(self.marker, checkpoint_id)

    return mistaken


@mutant(ChannelTotals, "skipping", "liveness", shows=_skips)
def no_seek_back(skipping: Any) -> Any:
    """A task that has skipped records never goes back for them (A5)."""
    return property(lambda self: False)


@mutant(Inputs, "rollback_marker", "halted", "lost", "duplicate", "rolled back", "seq", shows=_aligned)
def stale_rollback_marker_taken(rollback_marker: Any) -> Any:
    """A rollback marker of a generation that was announced before is taken again (R4)."""

    def mistaken(self: Inputs, partition: TopicPartition, offset: int, message: Any, frozen: int) -> bool:
        channel = self.channels[message.header.producer, partition]
        channel.generation = min(channel.generation, message.header.generation - 1)
        return bool(rollback_marker(self, partition, offset, message, frozen))

    return mistaken


@mutant(Inputs, "rollback_marker", "halted", "lost", "resume", shows=_aligned)
def seq_not_set_back(rollback_marker: Any) -> Any:
    """A rollback marker does not set the seq of its channel (R4)."""

    def mistaken(self: Inputs, partition: TopicPartition, offset: int, message: Any, frozen: int) -> bool:
        channel = self.channels[message.header.producer, partition]
        kept = channel.next_seq
        rolls_back = bool(rollback_marker(self, partition, offset, message, frozen))
        self.channels[message.header.producer, partition].next_seq = kept
        return rolls_back

    return mistaken


@mutant(Inputs, "rollback_marker", "rolled back", "halted", shows=_aligned)
def no_rollback(rollback_marker: Any) -> Any:
    """A task keeps what a rollback marker has taken back (R4)."""

    def mistaken(self: Inputs, partition: TopicPartition, offset: int, message: Any, frozen: int) -> bool:
        rollback_marker(self, partition, offset, message, frozen)
        return False

    return mistaken


@mutant(Rollbacks, "commit", "rolled back", "halted", "lost", "duplicate", shows=_aligned)
def rollback_histories_not_committed(commit: Any) -> Any:
    """The rollback history tables are not part of the commit (R3)."""
    return lambda self: ()


@mutant(Inputs, "greatest_checkpoint", "ahead", shows=_tight)
def half_drained_checkpoint_closed(greatest_checkpoint: Any) -> Any:
    """Near the write batch's bound the checkpoint before the one being drained is closed (found by the simulator)."""
    return property(lambda self: 0)


@mutant(TaskCore, "_output_frames", "checkpoint", "lost", "ahead", "halted", "generation", shows=_aligned)
def checkpoint_id_too_high(output_frames: Any) -> Any:
    """Records carry the checkpoint after the open one."""

    def mistaken(self: TaskCore, event: Any) -> Any:
        if self._flushing is not None:
            return output_frames(self, event)
        self.frozen += 1
        try:
            return output_frames(self, event)
        finally:
            self.frozen -= 1

    return mistaken
