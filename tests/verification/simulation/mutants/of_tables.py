"""Mistakes with tables beside a stream: inputs that are read first (A2c), or whole by each task (A2d)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from grete.core.external_inputs import Bounds, ExternalInputs
from grete.execution.engine.task_inputs import AwaitedTransactions
from grete.execution.inputs.input_reader import InputReader
from grete.execution.records.outputs import Outputs
from grete.logs.open_transactions import HiddenInput
from grete.protocol.commit import Commit, ExternalInput
from grete.protocol.ids import TopicPartition
from tests.verification.simulation.forms import with_broadcast, with_grouped, with_strangers, with_table
from tests.verification.simulation.mutants.registry import mutant
from tests.verification.simulation.plan import WHOLE, Plan


def _with_table(plan: Plan) -> Plan:
    return plan if plan.topology.bootstrap else with_table(plan)


def _with_strangers(plan: Plan) -> Plan:
    return with_strangers(replace(_with_table(plan), compare_and_append=False, damaged=False))


def _of_several_partitions(plan: Plan) -> bool:
    counts = [count for topics in with_table(plan).topology.broadcast.values() for count in topics.values()]
    return max(counts, default=0) > 1


def _copies(plan: Plan) -> bool:
    return plan.aligned and any(stream.partitions > 1 for stream in plan.topology.streams)


@mutant(ExternalInputs, "commit", "position", "error", shows=_of_several_partitions, focus=_with_table)
def broadcast_position_of_one(commit: Any) -> Any:
    """A commit has the position in one partition of each topic, though the task reads all of a broadcast one (A2d)."""

    def mistaken(self: ExternalInputs) -> tuple[ExternalInput, ...]:
        return tuple({entry.topic: entry for entry in commit(self)}.values())

    return mistaken


def _with_grouped(plan: Plan) -> Plan:
    return plan if plan.topology.counts else with_grouped(plan, WHOLE)


def _of_several_for_each_task(plan: Plan) -> bool:
    wirings = _with_grouped(plan).wirings.values()
    return any(len(wiring.external) > len({each.topic for each in wiring.external}) for wiring in wirings)


@mutant(ExternalInputs, "resume", "position", "lost", "error", shows=_of_several_for_each_task, focus=_with_grouped)
def grouped_rollback_of_one(resume: Any) -> Any:
    """A rollback takes one partition of each topic back, though the task reads several of them (A2f)."""

    def mistaken(self: ExternalInputs, commit: Commit, bounds: Bounds) -> None:
        before = self.position
        resume(self, commit, bounds)
        first = {partition.topic: partition for partition in reversed(self.position)}
        self.position |= {each: at for each, at in before.items() if each not in first.values()}

    return mistaken


@mutant(Outputs, "_stream_append", "lost", "seq", "halted", "liveness", shows=_copies, focus=with_broadcast)
def broadcast_by_key(stream_append: Any) -> Any:
    """A record of a broadcast stream goes to the task of its key alone (A2d)."""

    def mistaken(self: Outputs, streams: Any) -> Any:
        return stream_append(self, [replace(stream, broadcast=False) for stream in streams])

    return mistaken


@mutant(ExternalInputs, "resume", "first", focus=_with_table)
def bootstrap_end_forgotten(resume: Any) -> Any:
    """A task that goes on from a commit, after a restart or a rollback, reads all its inputs at once (A2c)."""

    def mistaken(self: ExternalInputs, commit: Commit, bounds: Bounds) -> None:
        resume(self, commit, bounds)
        self._ends = dict.fromkeys(self._ends, 0)

    return mistaken


@mutant(AwaitedTransactions, "bounds", "first", focus=_with_strangers)
def open_transaction_is_an_end(bounds: Any) -> Any:
    """A table ends where readers stop, in front of a transaction that somebody else has open (A2c)."""

    def mistaken(self: AwaitedTransactions, partitions: Sequence[TopicPartition], first: Any) -> Any:
        return bounds(self, partitions, ())

    return mistaken


@mutant(AwaitedTransactions, "hides", "first", focus=_with_strangers)
def hidden_rows_not_awaited(hides: Any) -> Any:
    """A task that has nothing left to read of a table goes on, though a transaction hides rows of it (A2c)."""
    return lambda _self, _partition, _needed: False


@mutant(HiddenInput, "is_over", "complete", focus=_with_strangers)
def run_awaits_no_transaction(is_over: Any) -> Any:
    """A run says that all input is processed while a transaction hides records that were there before it (A2c)."""
    return lambda _self, _ends: True


def _with_priority(plan: Plan) -> Plan:
    return plan if plan.priorities else with_table(plan)


@mutant(InputReader, "__init__", "priority", shows=lambda plan: bool(with_table(plan).priorities), focus=_with_priority)
def priority_forgotten(init: Any) -> Any:
    """A task reads all of its inputs in the order of time, whatever their priorities."""

    def mistaken(self: InputReader, *arguments: Any, **more: Any) -> None:
        init(self, *arguments, **more | {"priorities": {}})

    return mistaken
