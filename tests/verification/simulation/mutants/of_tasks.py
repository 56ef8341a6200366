"""Mistakes in the order of things: before a commit, after it, at a start, at the end (A2, A7, A8, R2, C4)."""

from typing import Any

from msgspec.structs import replace

from grete.core.actions import DropOpen, Trim
from grete.core.aligned.task import TaskCore
from grete.core.commit_pipeline import CommitPipeline
from grete.core.events import DataWritten, ExternalProcessed
from grete.core.idleness import Idleness
from grete.errors import Halted
from grete.execution.engine.driver import TaskDriver
from grete.execution.engine.pending_sends import PendingSends
from grete.protocol.control import encode_marker
from grete.protocol.ids import TopicPartition
from tests.verification.simulation.mutants.registry import mutant
from tests.verification.simulation.plan import Plan


def _aligned(plan: Plan) -> bool:
    return plan.aligned and bool(plan.topology.streams)


@mutant(TaskCore, "_freeze", "marker", shows=_aligned)
def marker_before_commit(freeze: Any) -> Any:
    """A marker is sent when a checkpoint is frozen (A7)."""

    def mistaken(self: TaskCore, checkpoint_id: int) -> Any:
        actions = freeze(self, checkpoint_id)
        for o in self.commits.pending.frozen.outputs if self.commits.pending is not None else ():
            marker = encode_marker(self.task.producer, self.generation, checkpoint_id, o.next_seq, False)
            actions.append(self.sender.send(TopicPartition(o.topic, o.partition), marker))
        return actions

    return mistaken


def _rests(plan: Plan) -> bool:
    return plan.settings.idle_checkpoint_interval_ms > plan.settings.checkpoint_interval_ms


def _rests_behind(plan: Plan) -> bool:
    return _aligned(plan) and _rests(plan)


@mutant(Idleness, "__init__", "core", shows=_rests_behind)
def awaited_marker_left_out(init: Any) -> Any:
    """A task that has nothing new leaves a checkpoint out although its consumers wait for the marker (A1)."""
    return lambda self, *intervals, awaited, grows: init(self, *intervals, awaited=False, grows=grows)


@mutant(TaskCore, "_process", "core", "liveness", "lost", shows=_rests_behind)
def early_record_is_no_news(process: Any) -> Any:
    """A task does not notice that a record which was early is new to the open checkpoint (A4)."""

    def mistaken(self: TaskCore, action: Any) -> Any:
        news = self.idleness.news
        actions = process(self, action)
        self.idleness.news = news
        return actions

    return mistaken


@mutant(TaskCore, "_close_due", "core", shows=_rests_behind)
def left_out_taken_for_closed(close: Any) -> Any:
    """A task goes on as if the checkpoint that it has left out were the last one that it closed (A4, A6)."""

    def mistaken(self: TaskCore) -> Any:
        actions = close(self)
        if not self.closing.by_timer:
            self.frozen = self.idleness.closed(self.frozen)
        return actions

    return mistaken


@mutant(TaskCore, "_freeze", "trim", shows=_aligned)
def trim_before_commit(freeze: Any) -> Any:
    """Inputs are trimmed when a checkpoint is frozen (K3)."""

    def mistaken(self: TaskCore, checkpoint_id: int) -> Any:
        actions = freeze(self, checkpoint_id)
        pending = self.commits.pending
        return actions + [
            Trim(TopicPartition(i.topic, i.partition), i.resume) for i in ((pending and pending.frozen.inputs) or ())
        ]

    return mistaken


@mutant(CommitPipeline, "write_data", "halted", "lost", "liveness", shows=_aligned)
def outputs_not_awaited(write_data: Any) -> Any:
    """A checkpoint is committed although not all of its outputs are acknowledged (A7)."""

    def mistaken(self: CommitPipeline) -> Any:
        if self.pending is not None:
            self.pending.frozen = self.pending.frozen._replace(last_token=0)
        return write_data(self)

    return mistaken


@mutant(TaskCore, "step", "position")
def external_position_late(step: Any) -> Any:
    """The position in external inputs is taken when the commit is sent, not at the freeze (A2, A8)."""

    def mistaken(self: TaskCore, event: Any) -> Any:
        if isinstance(event, DataWritten) and self.commits.pending is not None:
            frozen = self.commits.pending.frozen
            self.commits.pending.frozen = frozen._replace(external=self.external.commit())
        return step(self, event)

    return mistaken


@mutant(TaskDriver, "_perform_next", "output", shows=_aligned)
def outputs_kept(perform_next: Any) -> Any:
    """A rollback keeps what a sink holds back (R4)."""

    def mistaken(self: TaskDriver) -> bool:
        kept = self.parts.runner.take_external() if self.parts.todo and isinstance(self.parts.todo[0], DropOpen) else []
        done = bool(perform_next(self))
        if kept:
            self.parts.runner.site.outputs._external.extend(kept)  # type: ignore[attr-defined]  # the processor's
        return done

    return mistaken


@mutant(TaskCore, "_announce", "halted", "lost", "rolled back", shows=_aligned)
def rollback_marker_not_sent(announce: Any) -> Any:
    """A task that restarts where it was does not say so (R2)."""

    def mistaken(self: TaskCore) -> Any:
        if self.generation % 2:
            return announce(self)
        outputs, self.sender.next_seq = self.sender.next_seq, {}
        actions = announce(self)
        self.sender.next_seq = outputs
        return actions

    return mistaken


@mutant(TaskCore, "_announce", "halted", "lost", "rolled back", shows=_aligned)
def rollback_marker_without_history(announce: Any) -> Any:
    """A rollback marker names its own generation only, not the rollback history (R3)."""

    def mistaken(self: TaskCore) -> Any:
        rollback_history, self.rollback_history = self.rollback_history, self.rollback_history[-1:]
        actions = announce(self)
        self.rollback_history = rollback_history
        return actions

    return mistaken


@mutant(PendingSends, "sent_other", "liveness")
def commit_awaited_for_ever(sent_other: Any) -> Any:
    """A commit whose acknowledgement was lost is waited for without end (C4; found by the simulator)."""

    def mistaken(self: PendingSends, token: int, mono_ms: float, size: int = 0) -> None:
        sent_other(self, token, mono_ms + 1e12, size)

    return mistaken


@mutant(TaskCore, "_started", "halted")
def old_bounds_trusted(started: Any) -> Any:
    """The end of an input is judged by what it was before the claim (K3; found by the simulator)."""

    def mistaken(self: TaskCore) -> Any:
        actions = started(self)
        for partition, position in (*self.inputs.position.items(), *self.external.position.items()):
            if position > self.start_up.bounds[partition][1]:
                raise Halted(f"{self.task.name} resumes at {partition} offset {position}, beyond the end")
        return actions

    return mistaken


@mutant(TaskCore, "step", "halted", shows=lambda plan: plan.tight_batch)
def source_blind_to_its_batch(step: Any) -> Any:
    """A source does not learn how large its write batch is until a checkpoint is due (A9; found by reading)."""

    def mistaken(self: TaskCore, event: Any) -> Any:
        return step(self, replace(event, open_bytes=0) if isinstance(event, ExternalProcessed) else event)

    return mistaken
