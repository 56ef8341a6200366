"""The mutants that take half of the computing of all: `make prove` has them, and `make test` the others."""

from collections.abc import Sequence

import pytest

# They die of the liveness of worlds of thousands of steps, or of all that comes behind a damage: half of the computing
# that all mutants take. Others die of the same invariants.
LONG_LIVED = {
    "alignment_over_all_channels",
    "busy_sources_wait_for_others",
    "committed_before_acknowledged",
    "decision_digest_ignored",
    "end_told_once",
    "ends_forgotten_by_a_rollback",
    "ends_overlooked",
    "idle_sources_observe_nothing",
    "idle_sources_wait_where_no_task_observes",
    "last_record_ends_its_time",
    "one_row_of_joint_progress",
    "record_behind_the_end_overlooked",
}


def tier_of(mutant: str) -> Sequence[pytest.MarkDecorator]:
    """Return the marker of its tier, none if it is of `make test`."""
    return [pytest.mark.prove] if mutant in LONG_LIVED else []
