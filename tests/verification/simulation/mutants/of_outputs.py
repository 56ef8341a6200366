"""Mistakes in how the outputs of deterministic tasks leave without transactions, and are recovered (D5)."""

from dataclasses import replace
from typing import Any

from msgspec import structs

from grete.core.deterministic.task import DeterministicCore
from grete.core.events import Ran
from grete.execution.deterministic.output_recovery import OutputRecovery
from grete.execution.deterministic.outputs import LogicalOutputs
from grete.protocol.ids import split_producer_id
from tests.verification.simulation.mutants.registry import full_of, mutant
from tests.verification.simulation.plan import Plan, with_settings

_killed = full_of("crash", "crash at a boundary", "crash of several")


def _recovering(plan: Plan) -> Plan:
    return _killed(with_settings(plan, output_delivery="sequenced", checkpoint_interval_ms=20))


def _out_of_step(plan: Plan) -> Plan:
    """Outputs that are late while commits are quick."""
    busy = full_of("crash", "slow partition", "crash at a boundary")(_recovering(plan))
    return replace(busy, reluctance=(0.0, 0.9, 0.0, 0.95))


def _reads_and_writes_outside(plan: Plan) -> bool:
    tasks = plan.wirings.items()
    return any(wiring.external and split_producer_id(task)[0] in plan.out_partitions for task, wiring in tasks)


def _has_no_streams(plan: Plan) -> bool:
    return not plan.topology.streams


def _in_doubt(plan: Plan) -> Plan:
    """Sources that die between what they take and the log's answer, and read in other pieces when they start again."""
    return replace(_out_of_step(plan), reluctance=(0.95, 0.0, 0.9, 0.0))


@mutant(OutputRecovery, "begin", "outside twice", focus=_recovering, world="deterministic")
def nothing_recovered(_begin: Any) -> Any:
    """A restarted task sends all again that it makes again, whatever is outside."""
    return lambda self, last: None


@mutant(OutputRecovery, "step", "outside twice", focus=_recovering, world="deterministic")
def recovered_in_part(step: Any) -> Any:
    """A restarted task goes on after the first piece that it has read."""

    def mistaken(self: OutputRecovery) -> Any:
        done = step(self)
        while self._left:
            self._left.popleft()
            for found in self._found.items():
                self._outputs.recover(*found)
        return done

    return mistaken


@mutant(LogicalOutputs, "note_end", "outside twice", focus=_recovering, world="deterministic")
def place_ahead_of_acknowledged(at: Any) -> Any:
    """The state takes more to stand outside than was acknowledged: a restarted task begins to look too late."""
    return lambda self, partition, end: at(self, partition, end + 3)


@mutant(
    DeterministicCore,
    "_freeze",
    "release",
    "liveness",
    shows=_has_no_streams,
    focus=_out_of_step,
    world="deterministic",
)
def committed_before_acknowledged(freeze: Any) -> Any:
    """A commit does not wait until the outputs that were sent before it are acknowledged (A7)."""

    def mistaken(self: DeterministicCore, checkpoint_id: int) -> Any:
        acked, self.sender.acked = self.sender.acked, 1 << 62
        actions = freeze(self, checkpoint_id)
        assert self.commits.pending is not None
        self.sender.acked, self.commits.pending.frozen = acked, self.commits.pending.frozen._replace(last_token=0)
        return actions

    return mistaken


@mutant(
    DeterministicCore,
    "_ran",
    "prefix",
    "again",
    "release",
    shows=_reads_and_writes_outside,
    focus=_in_doubt,
    world="deterministic",
)
def output_before_decision(ran: Any) -> Any:
    """A source's outputs to the outside leave before its input decision is in the changelog (D2)."""

    def mistaken(self: DeterministicCore, event: Ran) -> Any:
        if self.releases or not (self.source.batches and event.outputs):
            return ran(self, event)
        return [self.sender.produce(event.outputs), *ran(self, structs.replace(event, outputs=0))]

    return mistaken
