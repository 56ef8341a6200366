"""Mistakes that show only where a checkpoint changes many keys: in many slices, more than a cache holds (A8, A9)."""

from typing import Any

from grete.core.aligned.task import TaskCore
from grete.core.lifecycle import CommitStep
from grete.stores.overlay.overlay_store import OverlayStore
from tests.verification.simulation.forms import with_many_keys
from tests.verification.simulation.mutants.registry import full_of, mutant
from tests.verification.simulation.plan import Plan, with_settings

_CACHE_BYTES = 12_000  # both halves: some dozen keys each


def _roomy(plan: Plan) -> bool:
    return not plan.tight_batch


def _takes_back(plan: Plan) -> bool:
    return plan.aligned and _roomy(plan) and bool(plan.topology.streams)


def cached(plan: Plan) -> Plan:
    """A read cache that holds what a checkpoint of few keys changes."""
    return with_settings(plan, read_cache_bytes_max=_CACHE_BYTES)


def _many_keys(plan: Plan) -> Plan:
    return with_many_keys(cached(plan))


def _taken_back(plan: Plan) -> Plan:
    """Large checkpoints, and producers that die meanwhile."""
    return full_of("crash", "crash of several")(with_many_keys(plan))


@mutant(OverlayStore, "settle", "uncommitted", "store", "restore", "output", shows=_roomy, focus=_many_keys)
def cache_kept_over_a_large_checkpoint(settle: Any) -> Any:
    """A checkpoint larger than the read cache goes to the store, and what was read before it stays in the cache."""

    def mistaken(self: OverlayStore, part: Any, writes: Any, *, keep: bool) -> None:
        before = dict(self._cache), dict(self._cache_old)
        settle(self, part, writes, keep=keep)
        if not keep:
            self._cache, self._cache_old = before

    return mistaken


@mutant(TaskCore, "_pump", "core", "halted", "error", "uncommitted", shows=_takes_back, focus=_taken_back)
def rollback_between_two_slices(pump: Any) -> Any:
    """A task claims for a rollback while the slices of a checkpoint are on their way (R4, A8)."""

    def mistaken(self: TaskCore) -> Any:
        pending = self.commits.pending
        sending = pending is not None and pending.step is CommitStep.DATA
        if sending and self.inputs.taken_back and not self._processing and self._flushing is None:
            return self._begin_rollback()
        return pump(self)

    return mistaken
