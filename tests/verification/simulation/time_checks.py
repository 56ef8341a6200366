"""Invariants of event time in aligned tasks (E1 to E5), apart from the oracle's own comparison."""

from collections.abc import Sequence

from tests.verification.simulation.claims import Claims
from tests.verification.simulation.idents import stamp
from tests.verification.simulation.oracle import TaskHistory, Violation
from tests.verification.simulation.plan import NEVER_IDLE_MS, Plan
from tests.verification.simulation.steps import Step
from tests.verification.simulation.usercode import COUNTS, LATE


def check_watermark(name: str, step: Step, record: int, producer: TaskHistory, claims: Claims) -> None:
    """Check a watermark that a task took before this record (from 1) of the channel: valid, its producer was so far."""
    generation, open_checkpoint = map(int, step.value.split(b";")[2:])
    if claims.is_rolled_back(generation, open_checkpoint):
        raise Violation(
            "rolled back", f"{name}: holds a watermark of generation {generation}, checkpoint id {open_checkpoint}"
        )
    told, allowed = int(step.value.split(b";")[0]), producer.time_before(step.partition, record)
    if told > allowed:
        where = f"{step.partition} offset {step.offset}: watermark {told} before record {record}"
        raise Violation("event time", f"{name}: {where}, but {producer.wiring.name} was at {allowed}")


def check_timestamps(name: str, steps: Sequence[Step], disorder: int) -> None:
    """Check that each record has the timestamp of the record that it was made of."""
    for step in steps:
        if step.draw >= 0 and step.timestamp != stamp(step.value, disorder):
            raise Violation("timestamp", f"{name}: {step} has another timestamp than its record")


def late_records(name: str, plan: Plan, history: TaskHistory) -> int:
    """Return the number of late records; none is where no input is out of order or idle, and nothing repeated.

    Nor where timers by the clock fire behind a drain: that may have moved the time of the stages behind further.
    """
    late = int(history.state((COUNTS, LATE)) or 0) if history.time is not None else 0
    in_order = (plan.aligned or plan.deterministic) and not plan.disorder and not plan.reordered
    in_order = in_order and not (plan.wall and plan.drained)
    if late and in_order and plan.settings.event_time_idle_ms == NEVER_IDLE_MS:
        raise Violation("event time", f"{name}: {late} records are late, but no input was out of order")
    return late
