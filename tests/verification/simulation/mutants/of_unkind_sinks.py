"""Mistakes that show only where a sink takes its time: checkpoints wait for it, over restarts and rollbacks (S2)."""

from dataclasses import replace
from typing import Any

from grete.execution.sinks.outbox import Outbox
from grete.execution.sinks.outbox_executor import Background
from tests.verification.simulation.mutants.registry import full_of, mutant
from tests.verification.simulation.plan import Plan, with_settings


def _writes_files(plan: Plan) -> bool:
    return bool(plan.files)


def _behind(plan: Plan) -> Plan:
    """Sinks that are behind by several checkpoints when their tasks start again."""
    slow = with_settings(plan, sink_buffer_bytes_max=1 << 20)
    slow = replace(slow, unkind=replace(plan.unkind, sink_ms=3 * plan.settings.checkpoint_interval_ms))
    return full_of("crash", "zombie", "graceful stop")(slow)


@mutant(Outbox, "reload", "sink", "error", shows=_writes_files, focus=_behind)
def block_numbers_used_again(reload: Any) -> Any:
    """After a restart with several checkpoints pending at a sink, the numbers of the later ones' blocks come again."""

    def mistaken(self: Outbox, outputs: Any) -> None:
        reload(self, outputs)
        self._open.begin(self._pending.committed[0].end if self._pending.committed else 0)

    return mistaken


@mutant(Background, "restart", "error", "sink", shows=_writes_files, focus=_behind)
def result_of_a_plan_given_up(restart: Any) -> Any:
    """After a rollback the new plan is given the result of a step that was under way for the old one."""

    def mistaken(self: Background) -> None:
        restart(self)
        self._stale = False

    return mistaken
