"""Mistakes in what a restarted deterministic task compares with what its predecessor took and made (D2, D5)."""

from collections.abc import Sequence
from typing import Any

from grete.core.actions import ProcessExternal
from grete.execution.deterministic.decided import DecidedRows
from grete.execution.deterministic.remade import RemadePartition
from grete.ports import ExternalRecord, LogRow
from tests.verification.simulation.mutants.registry import full_of, mutant

_thinned = full_of("crash", "thinned input", damaged=True)


_changed = full_of("crash", "other outputs", damaged=True)


@mutant(RemadePartition, "_compare", "unnoticed", focus=_changed, world="deterministic")
def digest_not_compared(_compare: Any) -> Any:
    """A sink drops a repeated output by its seq alone, whatever its content (D5)."""

    def mistaken(self: RemadePartition, records: Sequence[ExternalRecord]) -> None:
        self._count(records)

    return mistaken


@mutant(DecidedRows, "read", "unnoticed", focus=_thinned, world="deterministic")
def decision_digest_ignored(_read: Any) -> Any:
    """A replay takes as many rows as were decided on, whichever they are (D2)."""

    def mistaken(self: DecidedRows, decision: ProcessExternal) -> list[LogRow]:
        return self._read_unproved(decision)

    return mistaken
