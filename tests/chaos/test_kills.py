"""A short chaos run on the embedded log: real processes, killed for real."""

from pathlib import Path

from rich.console import Console

from framework.runtime.place import Place
from tests.chaos.kills import run
from tests.chaos.outside import EmbeddedOutside


def test_kills_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    """Each input comes out once, in order, whatever dies where; and the state says the same (issue 5, in short)."""
    place = Place(tmp_path / "job")
    outside = EmbeddedOutside(place)
    try:
        tally, violations = run(outside, place, "embedded", seed=5, kills=25, console=Console(quiet=True))
    finally:
        outside.close()
    assert violations == []
    assert tally.kills >= 25
    assert tally.voided > 0
