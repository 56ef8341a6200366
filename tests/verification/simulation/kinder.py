"""Each way in which worlds are unkind: the counters that show it, and the mutants that die of it.

``KINDER`` takes that one thing out of a world. A mutant's known seed must be clean there, though the mistake is in it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tests.verification.simulation.plan import Plan
from tests.verification.simulation.window_kinds import TUMBLING

Kinder = Callable[[Plan], Plan]

_QUICK_MS = 300  # three intervals of a world whose checkpoints are not minutes apart


@dataclass(frozen=True, slots=True)
class Unkindness:
    """``counters``: of ``SOMETIMES``. ``mutants``: mutant → what takes the unkindness out of a world."""

    what: str
    counters: tuple[str, ...]
    mutants: Mapping[str, Kinder]


def _unkind(**kind: object) -> Kinder:
    return lambda plan: replace(plan, unkind=replace(plan.unkind, **kind))  # type: ignore[arg-type]  # its fields


def _without(*kinds: str) -> Kinder:
    """Return a function that takes the faults of some kinds out of a world."""
    return lambda plan: replace(plan, faults=tuple(fault for fault in plan.faults if fault.kind not in kinds))


def _undamaged(kind: str) -> Kinder:
    """Return a function that takes a damage out of a world."""
    return lambda plan: replace(_without(kind)(plan), damaged=False)


def _with_few_keys(plan: Plan) -> Plan:
    """Return a world whose checkpoints are one slice."""
    return replace(plan, wide=False, keys=4, knobs=replace(plan.knobs, chunk_keys=1000))


def _alone(plan: Plan) -> Plan:
    return replace(plan, together=False)


def _of_one_build(plan: Plan) -> Plan:
    return replace(plan, builds=False)


def _in_order(plan: Plan) -> Plan:
    return replace(plan, reordered=False)


def _undrained(plan: Plan) -> Plan:
    return replace(plan, drained=False)


def _tumbling(plan: Plan) -> Plan:
    return replace(plan, window=TUMBLING)


UNKINDNESSES = (
    Unkindness(
        "slow sinks, several checkpoints behind",
        (
            "checkpoints that wait for a sink together",
            "checkpoints that wait for a sink over a restart",
            "steps of a sink under way at a rollback",
        ),
        {"block_numbers_used_again": _unkind(sink_ms=0), "result_of_a_plan_given_up": _unkind(sink_ms=0)},
    ),
    Unkindness(
        "offsets of inputs that hold no message",
        ("offsets of inputs without a message",),
        {"records_counted_for_offsets": _unkind(holes=0.0)},
    ),
    Unkindness(
        "changelogs in transactions, some aborted",
        ("aborted transactions",),
        {"mark_counted_twice": _unkind(transactions=False)},
    ),
    Unkindness(
        "transactions that time out",
        ("transactions that timed out", "messages refused after a time-out"),
        {"refused_is_fenced": _unkind(timeout_ms=1 << 40)},
    ),
    Unkindness(
        "rivals that take a sink's id over and claim too late",
        ("rivals that a new epoch fences before they claim",),
        {"claim_overlooked_by_a_new_epoch": _unkind(renews=False)},
    ),
    Unkindness(
        "what is acknowledged cannot be read yet",
        ("acknowledged and not readable yet",),
        {"empty_read_is_the_end": _unkind(late=0.0, lag=0.0)},
    ),
    Unkindness(
        "reads that lag behind the bounds",
        ("reads that lag behind the end",),
        {"lagging_read_is_the_end": _unkind(lag=0.0)},
    ),
    Unkindness(
        "clients that read ahead",
        ("messages read ahead", "messages read ahead and not wanted"),
        {"fetched_before_a_seek": _unkind(reads_ahead=False)},
    ),
    Unkindness(
        "clients that need a while for what is sought",
        ("reads of what is on its way",),
        {"on_its_way_is_the_end": _unkind(fetch_ms=0)},
    ),
    Unkindness(
        "transactions that others have open in inputs",
        ("transactions of others in inputs", "ends that an open transaction hides"),
        dict.fromkeys(
            ("open_transaction_is_an_end", "hidden_rows_not_awaited", "run_awaits_no_transaction"),
            _unkind(strangers=0.0),
        ),
    ),
    Unkindness("trims that take a while", ("trims that take a while",), {"trimmed_is_left_out": _unkind(trim_ms=0)}),
    Unkindness(
        "tasks that share a loop and a client",
        ("processes of several tasks", "tasks that end by the error of another"),
        {"answers_to_whose_turn_it_is": _alone, "error_ends_the_turn_alone": _alone},
    ),
    Unkindness(
        "a twin that claims during a rollback",
        ("twins that claim during a rollback",),
        {"equal_claim_overlooked": _without("twin in a rollback")},
    ),
    Unkindness(
        "losses and changes in deterministic worlds",
        ("fault: truncated stream", "fault: thinned input", "fault: other outputs", "halts after a damage"),
        {
            "gap_before_progress": _undamaged("truncated stream"),
            "lost_record_overlooked": _undamaged("truncated stream"),
            "decision_digest_ignored": _undamaged("thinned input"),
            "digest_not_compared": _undamaged("other outputs"),
        },
    ),
    Unkindness(
        "checkpoints that are minutes apart",
        ("fault: idle hours",),
        {"waits_half_a_second": _unkind(late_ms=_QUICK_MS, lag_ms=_QUICK_MS)},
    ),
    Unkindness(
        "hours in which nothing runs", ("fault: idle hours",), {"round_trimmed_by_its_age": _without("idle hours")}
    ),
    Unkindness(
        "outages of the whole log",
        ("fault: outage", "questions that the log does not answer"),
        {"no_answer_is_an_empty_log": _without("outage")},
    ),
    Unkindness(
        "other builds of the job",
        ("starts of another graph that were refused",),
        {"refused_start_writes": _of_one_build, "only_the_own_graph_taken": _of_one_build},
    ),
    Unkindness(
        "checkpoints of hundreds of keys, and a hot key",
        ("checkpoints of many slices", "crashes between two slices of many"),
        {"cache_kept_over_a_large_checkpoint": _with_few_keys},
    ),
    Unkindness(
        "windows with grace, and windows whose timers have keys",
        ("early results of windows", "early results that replace others"),
        {
            "timers_of_keys_not_reloaded": _tumbling,
            "one_timer_for_each_moment": _tumbling,
            "time_told_ahead_of_windows": _tumbling,
        },
    ),
    Unkindness(
        "inputs that end",
        ("timers that a drain finds", "drains that a kill takes back"),
        dict.fromkeys(("ended_by_one_source", "ends_forgotten_by_a_rollback", "drained_again"), _undrained),
    ),
    Unkindness("repeats that come behind later records", ("numbers out of order",), {"lower_numbers_known": _in_order}),
)
KINDER = {name: kinder for each in UNKINDNESSES for name, kinder in each.mutants.items()}
