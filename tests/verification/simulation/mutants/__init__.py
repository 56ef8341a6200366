"""Known mistakes that the simulator must find, every one of them: a guard against empty success."""

from tests.verification.simulation.mutants import (
    of_changelog,
    of_digests,
    of_early_sinks,
    of_event_time,
    of_execution,
    of_inputs,
    of_logical_event_time,
    of_losses,
    of_modes,
    of_outputs,
    of_surroundings,
    of_tables,
    of_tasks,
    of_time,
    of_unkind_logs,
    of_unkind_sinks,
)
from tests.verification.simulation.mutants.registry import MUTANTS, Mutant, applied

__all__ = [
    "MUTANTS",
    "Mutant",
    "applied",
    "of_changelog",
    "of_digests",
    "of_early_sinks",
    "of_event_time",
    "of_execution",
    "of_inputs",
    "of_logical_event_time",
    "of_losses",
    "of_modes",
    "of_outputs",
    "of_surroundings",
    "of_tables",
    "of_tasks",
    "of_time",
    "of_unkind_logs",
    "of_unkind_sinks",
]
