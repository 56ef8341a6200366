"""A database's account of a task's outputs is gone before any commit knows of them (H041), by the test kit."""

from pathlib import Path

import pytest

from grete.errors import Halted
from grete.settings import Settings
from grete.testing import Kit
from tests.execution.deterministic.test_early_sinks import EARLY, LINES, LONG_MS, Place, job_writing


@pytest.mark.parametrize("settings", [EARLY, Settings(checkpoint_interval_ms=LONG_MS)])
def test_an_account_that_is_gone_is_not_begun_afresh(tmp_path: Path, settings: Settings) -> None:
    """H041: started again without its row, and before a commit knows what is there, a task writes nothing twice."""
    place = Place("sqlite", tmp_path)
    kit = Kit(job_writing(place.target), settings=settings)
    kit.advance(50)
    kit.feed(LINES, None, "a b")
    while not place.words():
        kit.advance(LONG_MS // 100)
    account = "grete_released" if settings is EARLY else "grete_applied"
    ((job, task, owner, *row),) = place.ask(f"SELECT * FROM {account}")
    place.ask(f"DELETE FROM {account}")
    kit.feed(LINES, None, "c")
    for _ in range(2):
        kit.crash("count")
        with pytest.raises(Halted, match=rf"GRETE-H041: .* was deleted from {account}: .*its owner is '{owner}'"):
            kit.advance(50)
        assert place.words() == ["a", "b"]
    place.ask(f"INSERT INTO {account} VALUES {(job, task, owner, *row)}")
    kit.crash("count")
    kit.run()
    assert place.words() == ["a", "b", "c"]
    kit.stop()
