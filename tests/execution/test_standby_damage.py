"""A standby whose log or store is damaged, late or away: what it does about it, and that it ends alone (R7)."""

import re
from typing import Any

import pytest

from grete.core.lifecycle import StandbyPhase
from grete.errors import LogAway, StoreCorrupted, TransientError
from grete.execution.changelog.standby import StandbyTask
from grete.execution.limits import READ_AGAIN_MS
from grete.logs.partition_reader import READABLE_S_MAX
from tests.core.streams import INNER
from tests.core.test_changelog_fold import Writer
from tests.execution.standbys import StandbyHost, chain, position_at, state_of


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda messages: messages[:4], "its store holds the commit at offset 5, but .* ends at 4"),
        (lambda messages: [*messages[:6], messages[6][:-1] + b"\0", messages[7]], "offset 7.*closes"),
        (lambda messages: [*messages[:6], b"\xff" * 40], "offset 6"),
        (lambda messages: [*messages[:6], Writer(2).claim(), *_on_another_commit()], "follows checkpoint 17, .* is 2"),
    ],
    ids=["shorter", "other data", "no message", "another history"],
)
def test_a_log_that_is_damaged_stops_this_standby_alone(
    damage: Any, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It says why, keeps what it has, and does nothing more; nothing is raised, so others in its process go on (R7)."""
    host, messages = StandbyHost(), chain()
    host.append(*messages[:6])
    host.work()
    before = host.state
    broken = StandbyHost(host.store)
    broken.append(*damage(messages))
    broken.work()
    broken.now_ms += READABLE_S_MAX * 1_000  # a commit may be readable late
    broken.work()
    assert broken.standby.phase is StandbyPhase.STOPPED
    assert broken.state == before
    assert not broken.standby.tick()
    assert re.search(words, broken.standby.trouble), broken.standby.trouble
    assert "standby stopped" in caplog.text


def _on_another_commit() -> list[bytes]:
    writer = Writer(2)
    writer.claim()
    return [writer.commit(18, previous=17)]


def test_a_commit_that_is_readable_late_is_waited_for() -> None:
    """A task has run on this store: its last commit is there before readers see it (S1)."""
    host, messages = StandbyHost(), chain()
    host.append(*messages)
    host.work()
    late = StandbyHost(host.store)
    late.append(*messages[:7])
    late.work()
    assert (late.standby.phase, late.standby.due_in_ms()) == (StandbyPhase.CREATED, READ_AGAIN_MS)
    late.append(messages[7])
    late.work()
    assert (late.standby.progress.caught_up, late.standby.counters["wipes"]) == (True, 0)


def test_a_store_that_is_damaged_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The changelog is the truth: the store is wiped, and the standby begins again."""
    host, messages = StandbyHost(), chain()
    host.append(*messages[:6])
    host.work()
    write, failed = host.store.write, list[Any]()

    def corrupt_once(*given: Any) -> None:
        if not failed:
            failed.append(given)
            raise StoreCorrupted("a block does not match its checksum")
        write(*given)

    monkeypatch.setattr(host.store, "write", corrupt_once)
    host.append(*messages[6:])
    host.work()
    assert len(failed) == 1
    assert host.held == position_at(7, messages[7])
    assert host.state == state_of([(messages[n],) for n in (2, 4, 6)])


def test_an_outage_and_a_full_disk_end_the_process() -> None:
    """Both are raised, as by a task; the next process begins from what the store holds."""
    host, messages = StandbyHost(), chain()
    host.append(*messages)

    class Away:
        def bounds(self, _: object) -> tuple[int, int]:
            raise LogAway("no broker answers")

    log: Any = Away()
    with pytest.raises(LogAway):
        StandbyTask(INNER, log, host.store, batch_bytes_max=64, mono_ms=lambda: 0).tick()

    class Full:
        def changelog_position(self) -> None:
            return None

        def wipe(self) -> None:
            raise TransientError("the disk is full")

    store: Any = Full()
    full = StandbyTask(INNER, host.log, store, batch_bytes_max=64, mono_ms=lambda: 0)
    full.tick()
    with pytest.raises(TransientError):
        full.tick()
