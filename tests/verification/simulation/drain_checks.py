"""Invariants of a drained job (E7)."""

from collections.abc import Container, Iterable, Mapping, Sequence

from grete.protocol.ids import TopicPartition
from tests.verification.simulation.log import SharedLog
from tests.verification.simulation.oracle import TaskHistory, Violation
from tests.verification.simulation.steps import LogicalStep, Step, TimeStep


def check_ended(
    name: str,
    steps: Sequence[Step | LogicalStep | TimeStep],
    external: Mapping[TopicPartition, int],
    log: SharedLog,
) -> None:
    """Check that an input was taken for ended only behind its last record. ``external``: positions after the steps."""
    for step in steps:
        if step.ended and not log.inputs_end:
            raise Violation("ended", f"{name}: takes {step.partition} for ended, and the job is not drained")
        if step.ended and log.partition(step.partition).has_rows(external[step.partition]):
            raise Violation("ended", f"{name}: takes {step.partition} for ended at {external[step.partition]}")


def all_read(histories: Iterable[TaskHistory], log: SharedLog) -> bool:
    """Tell whether all that came from outside is committed: a job is drained then, as tasks read no more (E7)."""
    return not any(log.partition(source).has_rows(at) for each in histories for source, at in each.external.items())


def all_ended(histories: Iterable[TaskHistory], drained: Container[int]) -> bool:
    """Tell whether all that goes by event time has committed that its inputs have ended, and no clock opens it.

    So has what waited for that: a checkpoint may close between two slices of it (E10). ``drained``: tasks that know it,
    and have done nothing since their last commit: they have nothing to commit.
    """
    return all(
        (h.time is None or h.time.ended or h.wiring.producer in drained) and not (h.waits or h.waits_for_the_clock)
        for h in histories
    )


def check_drained(histories: Iterable[TaskHistory]) -> None:
    """Check that nothing waits for a later time but timers that others have set for one."""
    for history in histories:
        if history.waits:
            raise Violation("drained", f"{history.wiring.name}: still waits for {history.waits[:3]}")
