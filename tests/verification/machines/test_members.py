"""A short run of a job's members on three machines: they move its partitions by themselves."""

from pathlib import Path

import pytest
from rich.console import Console

from tests.verification.machines.members import run

# starts of a broker and of members with all their imports, on a machine that has other tests to run
pytestmark = [pytest.mark.chaos, pytest.mark.kafka, pytest.mark.timeout(600)]


def test_members_go_on_without_a_machine(tmp_path: Path) -> None:
    """A machine is lost, cut off, frozen: the others take its partitions, and each input comes out once, in order."""
    members = run(tmp_path, "aligned", seed=3, faults=3, machines=3, console=Console(quiet=True))
    assert members.checker.violations == []
    assert members.checker.entries > 0
