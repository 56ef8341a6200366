"""Seeds of the simulator that have found something, and compute as much as twenty others."""

import pytest

from tests.verification.simulation.run import run_seed

pytestmark = pytest.mark.prove


def test_a_log_keeps_up_with_eight_tasks_of_a_process() -> None:
    """They send more in a turn than a log took that knew of one task a turn: sends timed out, and the world had no end.

    Worlds with three tasks in a process are among those that reach each situation.
    """
    assert run_seed(934514951567, world="deterministic").violation is None
