"""A short run of a job's members on three machines: they move its partitions by themselves."""

from pathlib import Path

import pytest
from rich.console import Console

from tests.verification.chaos.chain import PARTITIONS
from tests.verification.machines.members import run

# starts of a broker and of members with all their imports, on a machine that has other tests to run
pytestmark = [pytest.mark.chaos, pytest.mark.kafka, pytest.mark.timeout(600)]


def test_members_go_on_without_a_machine(tmp_path: Path) -> None:
    """A machine is lost, another cut off: the others take its partitions, and each input comes out once, in order.

    One that is frozen is in tests/worker/test_members.py.
    """
    quiet = Console(quiet=True)
    members = run(tmp_path, "aligned", seed=310, faults=2, machines=3, console=quiet, away_s=(3.0,))
    assert members.checker.violations == []
    assert set(members.tally) == {"lose", "cut"}
    assert members.moves() > PARTITIONS  # they came at first, and went elsewhere


@pytest.mark.prove  # here its line alone is far: tests/support/test_far_line.py
def test_a_machine_that_is_far_is_a_member_like_any_other(tmp_path: Path) -> None:
    """It takes over from the near one, which is killed, and hands over to it when it is stopped: nothing is lost."""
    quiet = Console(quiet=True)
    members = run(tmp_path, "aligned", seed=52, faults=2, machines=2, console=quiet, away_s=(3.0,), far_ms=50.0)
    assert members.checker.violations == []
    assert set(members.tally) == {"kill", "stop"}
