"""Mistakes in what runs a task's code: what a failed record leaves behind, and what is no state (A1, D3, E1)."""

from dataclasses import replace
from typing import Any

from grete.execution.deterministic.outputs import LogicalOutputs
from grete.execution.deterministic.processor import CALLS
from grete.execution.records.outputs import Outputs
from grete.execution.task_code import deduplication as module
from grete.execution.task_code.deduplication import Deduplicator
from grete.execution.timing.own_entries import OwnEntries
from grete.execution.timing.reserved_stores import TURN
from grete.execution.timing.timers import TimerQueue
from grete.stores.overlay.overlay import Overlay
from tests.verification.simulation.mutants.registry import full_of, mutant
from tests.verification.simulation.plan import Plan

_STATE = ("uncommitted", "store", "restore")
_AGAIN = ("again", "prefix", "halted", "exactly once", "release", "outside twice")
_killed = full_of("crash", "crash at a boundary", "crash of several", "zombie")


def _fails(plan: Plan) -> bool:
    return bool(plan.letters) and plan.aligned


def _fails_in_order(plan: Plan) -> bool:
    return bool(plan.letters & plan.topology.deterministic)


def _takes_batches(plan: Plan) -> bool:
    return bool(plan.batches & plan.out_partitions.keys()) and plan.aligned


def _remembers(plan: Plan) -> bool:
    return bool(plan.once) and plan.aligned


def _remembers_in_order(plan: Plan) -> bool:
    return bool(plan.once & plan.topology.deterministic)


def _numbered(plan: Plan) -> Plan:
    """Inputs that repeat and reorder, of tasks that know records by their numbers and are often killed."""
    return _killed(replace(plan, numbered=plan.once, reordered=True))


def _timed(plan: Plan) -> bool:
    return bool(plan.topology.timed) and plan.aligned


@mutant(Outputs, "rollback", "output", "exactly once", "seq", "lost", "halted", shows=_fails)
def outputs_of_a_failed_record(_rollback: Any) -> Any:
    """A record that fails leaves what it had sent before, beside its letter."""
    return lambda self: None


@mutant(Overlay, "undo", *_STATE, shows=_fails)
def state_of_a_failed_record(_undo: Any) -> Any:
    """A record that fails leaves what it had put into the state."""
    return lambda self: self.end_undo()


@mutant(LogicalOutputs, "rollback", "release", "outside twice", shows=_fails_in_order, world="deterministic")
def number_of_a_failed_record(_rollback: Any) -> Any:
    """A record that sends and then fails keeps the numbers of its outputs: one is missing outside (D5)."""
    return lambda self: None


@mutant(OwnEntries, "number", "output", *_STATE, shows=_fails, focus=_killed)
def turns_begin_again(number: Any) -> Any:
    """Records without a key take their turns from the first partition on after each restart: turns are no state."""
    return lambda self, key, default: default if key == TURN else number(self, key, default)


@mutant(
    OwnEntries, "number", "again", "prefix", "halted", "exactly once", "store", focus=_killed, world="deterministic"
)
def calls_begin_again(number: Any) -> Any:
    """A task's random numbers are counted from the start of its process: a replay draws others (D3)."""
    return lambda self, key, default: default if key == CALLS else number(self, key, default)


@mutant(Deduplicator, "_is_new_id", "exactly once", *_STATE, shows=_remembers, focus=_killed)
def ids_in_memory(_is_new_id: Any) -> Any:
    """The ids that an input has brought are forgotten with the process, or at a rollback: they are no state."""

    def mistaken(self: Deduplicator, record: Any) -> bool:
        known: set[Any] = vars(self).setdefault("known", set())
        new = (found := self._by_id.id(record)) not in known
        known.add(found)
        return new

    return mistaken


@mutant(module, "with_number", "output", "liveness", *_STATE, shows=_remembers, focus=_numbered)
def lower_numbers_known(with_number: Any) -> Any:
    """A number below the highest of its session counts as seen, though the record comes for the first time."""

    def mistaken(ranges: Any, number: int) -> Any:
        return None if ranges and number <= ranges[-1][1] else with_number(ranges, number)

    return mistaken


@mutant(
    Deduplicator, "_is_new_number", *_AGAIN, *_STATE, shows=_remembers_in_order, focus=_numbered, world="deterministic"
)
def numbers_in_memory(is_new_number: Any) -> Any:
    """The numbers that a session has brought are forgotten with the process: a replay takes a repeat for new."""

    def mistaken(self: Deduplicator, record: Any) -> bool:
        declared, known = self._by_sequence, vars(self).setdefault("known", set())
        new = (found := (declared.session(record), declared.number(record))) not in known
        known.add(found)
        return new

    return mistaken


@mutant(Outputs, "_encoding", "timestamp", "output", shows=_takes_batches)
def timestamp_of_the_batch(encoding: Any) -> Any:
    """Outputs of a task have the time of the batch, whatever timestamp it gives."""

    def mistaken(self: Outputs, *arguments: Any) -> Any:
        send = encoding(self, *arguments)

        def without(key: Any, value: Any, *, timestamp: Any = None, **others: Any) -> None:
            send(key, value, **others)

        return without

    return mistaken


@mutant(TimerQueue, "reload", "event time", *_STATE, shows=_timed, focus=_killed)
def timers_in_memory(reload: Any) -> Any:
    """A restart does not look for the timers that are set."""

    def mistaken(self: TimerQueue, now: int) -> None:
        reload(self, now)
        self._heap.clear()
        self._in_heap.clear()
        self._set_due()

    return mistaken
