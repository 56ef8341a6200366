"""Mistakes that show only where checkpoints are minutes apart, or where hours pass in which nothing runs."""

from dataclasses import replace
from typing import Any

from grete.core.changelog.changelog_rewrite import ChangelogRewrite
from grete.logs.partition_reader import PartitionReader
from tests.verification.simulation.mutants.registry import full_of, mutant
from tests.verification.simulation.plan import Plan, with_settings
from tests.verification.simulation.unkind import MINUTES_MS, SHOWN_MS_MAX

_HALF_A_SECOND = 0.5


def _minutes_apart(plan: Plan) -> bool:
    return plan.settings.checkpoint_interval_ms >= MINUTES_MS


def _shown_later(plan: Plan) -> Plan:
    """Changelogs of which a reader sees the end only seconds later, and processes that start all the time."""
    late = replace(plan.unkind, transactions=True, late=0.8, late_ms=SHOWN_MS_MAX, lag=0.0)
    return full_of("crash", "zombie")(replace(plan, unkind=late))


def _in_transactions(plan: Plan) -> bool:
    return _minutes_apart(plan) and plan.aligned and not plan.compare_and_append and bool(plan.out_partitions)


@mutant(PartitionReader, "__init__", "halted", shows=_in_transactions, focus=_shown_later)
def waits_half_a_second(init: Any) -> Any:
    """A task waits half a second for what its log has acknowledged, then takes it for lost: enough in tests (C3)."""

    def mistaken(self: PartitionReader, *given: Any, **more: Any) -> None:
        init(self, *given, **more | {"seconds_max": _HALF_A_SECOND})

    return mistaken


def _asleep(plan: Plan) -> Plan:
    """Histories of eight checkpoints, rounds of a few, and hours in which nothing runs."""
    kept = with_settings(plan, changelog_retention_ms=8 * plan.settings.checkpoint_interval_ms)
    knobs = replace(plan.knobs, rewrite_share=0.6, rewrite_idle_bytes=1, tail=1)
    return full_of("idle hours", "crash in a restore", "stale or wiped store")(replace(kept, knobs=knobs, keys=12))


@mutant(ChangelogRewrite, "trim", "restore", "halted", shows=_minutes_apart, focus=_asleep)
def round_trimmed_by_its_age(trim: Any) -> Any:
    """Commits older than the history are trimmed, though the round in progress has not written them again (K2)."""

    def mistaken(self: ChangelogRewrite, now_ms: int, changelog_retention_ms: int) -> int | None:
        due = trim(self, now_ms, changelog_retention_ms)
        old = self.started_ms + changelog_retention_ms <= now_ms
        return self.round_start if old and self.round_start else due

    return mistaken
