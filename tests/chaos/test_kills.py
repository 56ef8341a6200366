"""A short chaos run on the embedded log: real processes, killed for real."""

from pathlib import Path

from rich.console import Console

from tests.chaos.kills import run
from tests.chaos.outside import outside_of, place_of


def test_kills_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    """Each input comes out once, in order, whatever dies where; and the state says the same (issue 5, in short)."""
    place = place_of(tmp_path / "job", "embedded")
    outside = outside_of(place)
    try:
        tally, violations = run(outside, place, seed=5, kills=25, console=Console(quiet=True))
    finally:
        outside.close()
    assert violations == []
    assert tally.kills >= 25
    assert tally.voided > 0
