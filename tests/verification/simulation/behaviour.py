"""The behaviour of a simulated log towards its clients."""

from collections.abc import Callable
from dataclasses import dataclass

from grete.protocol.ids import TopicPartition, split_producer_id
from tests.verification.simulation.plan import Plan
from tests.verification.simulation.unkind import Unkind


@dataclass(frozen=True, slots=True)
class Behaviour:
    """A log's behaviour. ``fenced`` tells the partitions in which it compares and appends."""

    fenced: Callable[[TopicPartition], bool]
    repeat_rate: float
    clock_goes_back: bool
    reluctance: tuple[
        float, ...
    ]  # how often a partition puts off what it could append; each takes one of these in turn
    transactional: frozenset[TopicPartition]  # changelogs that are written in transactions
    unkind: Unkind
    reads_ahead: bool  # a client fetches more than it is asked for
    fetch_ms: int  # that a client may need until it has what was sought


def behaviour_of(plan: Plan) -> Behaviour:
    """Return the behaviour of a world's log towards clients."""
    sinks = {w.changelog for w in plan.wirings.values() if split_producer_id(w.producer)[0] in plan.out_partitions}
    return Behaviour(
        # a sink's outputs are fenced by the log even where all others are protected by C3 alone (S1)
        fenced=(lambda _: True) if plan.compare_and_append else sinks.__contains__,
        repeat_rate=plan.repeat_rate,
        clock_goes_back=not plan.compare_and_append,
        reluctance=plan.reluctance,
        transactional=frozenset(w.changelog for task, w in plan.wirings.items() if plan.in_transactions(task)),
        unkind=plan.unkind,
        fetch_ms=plan.unkind.fetch_ms,
        reads_ahead=plan.unkind.reads_ahead and not plan.damaged,  # or nothing may be read of what was damaged
    )
