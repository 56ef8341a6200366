"""The contract of every sink of an outbox: framework/sinks/sink.py, rule S2."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from framework.errors import TransientError
from framework.sinks.sink import Owner
from tests.contracts.sinks import OWNER, SinkWorld, apply, entries, files_world, postgres_world, sqlite_world


@pytest.fixture(params=["files", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SinkWorld]:
    """An empty place of each kind. No process waits long for another's lock."""
    monkeypatch.setattr("framework.sinks.sqlite.BUSY_S", 0.05)
    if request.param == "files":
        made = files_world(tmp_path / "out")
    elif request.param == "sqlite":
        made = sqlite_world(tmp_path / "numbers.db")
    else:
        monkeypatch.setattr("framework.sinks.postgres.LOCK_MS", 50)
        made = postgres_world(request.getfixturevalue("postgres_database"))
    yield made
    made.close()


def test_a_checkpoint_shows_as_a_whole_once_it_is_committed(place: SinkWorld) -> None:
    """Nothing is seen before the commit, everything after, in the order of the writes."""
    sink = place.sink()
    assert sink.begin(1)
    sink.write(entries(*range(500)))
    sink.write(entries(*range(500, 1000)))
    assert place.content() == {}
    sink.commit()
    assert place.content() == {"a": list(range(1000))}


def test_a_checkpoint_applied_again_changes_nothing(place: SinkWorld) -> None:
    """By the same process or the next one, at once or when later checkpoints are there."""
    sink = place.sink()
    assert apply(sink, 1, 1, 2)
    assert not apply(sink, 1, 1, 2)
    assert apply(sink, 2, 3)
    for checkpoint_id in (1, 2):
        assert not apply(place.sink(), checkpoint_id, 1, 2)
    assert place.content() == {"a": [1, 2, 3]}


@pytest.mark.parametrize("written", [False, True])
def test_what_a_crash_left_half_done_is_not_seen_and_done_again(place: SinkWorld, *, written: bool) -> None:
    """A process that ends between begin and commit leaves nothing, and nothing in the way of the next one."""
    sink = place.sink()
    sink.begin(1)
    if written:
        sink.write(entries(1, 2))
    sink.close()
    assert place.content() == {}
    assert apply(place.sink(), 1, 1, 2)
    assert place.content() == {"a": [1, 2]}


def test_a_sink_opened_again_forgets_what_was_half_done(place: SinkWorld) -> None:
    """After trouble the same process opens its sink again and starts the checkpoint from its first output."""
    sink = place.sink()
    sink.begin(1)
    sink.write(entries(1))
    sink.open(OWNER)
    assert apply(sink, 1, 1, 2)
    assert place.content() == {"a": [1, 2]}


def test_an_instance_that_sleeps_over_its_checkpoint_changes_nothing(place: SinkWorld) -> None:
    """Two instances apply the same checkpoint, and the first one falls asleep before any step.

    Each output is there once all the same.
    """
    for asleep_at in range(3):
        checkpoint_id, numbers = 10 * asleep_at + 10, [10 * asleep_at + 1, 10 * asleep_at + 2]
        zombie = place.sink()
        if asleep_at > 0:
            assert zombie.begin(checkpoint_id)
        if asleep_at > 1:
            zombie.write(entries(*numbers))
        with contextlib.suppress(TransientError):  # a database makes it wait for the one who sleeps …
            apply(place.sink(), checkpoint_id, *numbers)
        with contextlib.suppress(TransientError):
            if asleep_at == 0:
                apply(zombie, checkpoint_id, *numbers)
            else:
                if asleep_at == 1:
                    zombie.write(entries(*numbers))
                zombie.commit()  # … who does it, or finds that it was done
        successor = place.sink()
        apply(successor, checkpoint_id, *numbers)
        apply(successor, checkpoint_id + 1, numbers[1] + 1)
        zombie.open(OWNER)
        assert not apply(zombie, checkpoint_id, *numbers)
    assert place.content() == {"a": [1, 2, 3, 11, 12, 13, 21, 22, 23]}


def test_tasks_do_not_disturb_one_another(place: SinkWorld) -> None:
    """What one task has applied says nothing about another's checkpoints."""
    first, second = place.sink(), place.sink(Owner("job", "stage-1", "nonce"))
    assert apply(first, 5, 1, task="a")
    assert apply(second, 4, 1, task="b")
    assert apply(second, 5, 2, task="b")
    assert place.content() == {"a": [1], "b": [1, 2]}
