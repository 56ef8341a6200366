"""A short run of take-overs: three machines, a real broker, and an assigner that is wrong, late or double."""

from pathlib import Path

import pytest
from rich.console import Console

from tests.verification.chaos.chain import Mode
from tests.verification.machines.takeovers import run

# starts of a broker and of workers with all their imports, on a machine that has other tests to run
pytestmark = [pytest.mark.chaos, pytest.mark.kafka, pytest.mark.timeout(600)]


@pytest.mark.parametrize("mode", ["aligned", pytest.param("deterministic", marks=pytest.mark.prove)])
def test_claims_decide_whatever_an_assigner_does(tmp_path: Path, mode: Mode) -> None:
    """Each input comes out once, in order, and the stores say the same, while partitions move between machines."""
    ran = run(tmp_path, mode, seed=8, takeovers=2, away_s=(0.5, 1.0, 3.0), console=Console(quiet=True))
    assert ran.violations == []
    assert ran.assigner.takeovers >= 2
