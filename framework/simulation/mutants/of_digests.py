"""Mistakes in what a restarted deterministic task compares with what its predecessor took and made (D2, D5)."""

from typing import Any

from framework.core.actions import ProcessExternal
from framework.ports import LogRow
from framework.runtime.deterministic.decided import DecidedRows
from framework.simulation.mutants.registry import full_of, mutant

_thinned = full_of("crash", "thinned input", damaged=True)


@mutant(DecidedRows, "read", "unnoticed", focus=_thinned, world="deterministic")
def decision_digest_ignored(_read: Any) -> Any:
    """A replay takes as many rows as were decided on, whichever they are (D2)."""

    def mistaken(self: DecidedRows, decision: ProcessExternal) -> list[LogRow]:
        return self._read_unproved(decision)

    return mistaken
