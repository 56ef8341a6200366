"""A member that joins and dies again and again, beside two that work."""

from pathlib import Path

import pytest

from tests.verification.machines.flapping import run

# starts of a broker and of members with all their imports, on a machine that has other tests to run
pytestmark = [pytest.mark.chaos, pytest.mark.kafka, pytest.mark.prove, pytest.mark.timeout(600)]


def test_members_work_beside_one_that_joins_and_dies(tmp_path: Path) -> None:
    """Nothing is lost, and what it had goes to the others once: it dies before it could get something again."""
    members, seen = run(tmp_path, "aligned", seed=5, machines=3, seconds=8.0, quiet_s=1.0)
    assert members.checker.violations == []
    assert len(seen.sessions) > seen.deaths > 1  # each life was known to the others before it ended
