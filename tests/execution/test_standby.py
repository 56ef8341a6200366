"""A standby: its store is the committed state at its changelog position, whatever comes and whenever it dies (R7)."""

import zlib
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from grete.core.changelog.changelog_fold import ChangelogFold
from grete.core.lifecycle import StandbyPhase
from grete.execution.changelog import standby_store
from grete.execution.limits import STANDBY_LOOK_MS, STANDBY_POSITION_MS
from grete.protocol.changelog import ChangelogHeader, ChangelogType, encode_data
from grete.stores.rocksdb.memory_use import RocksMemory
from grete.stores.rocksdb.store import RocksStore
from tests.core.test_changelog_fold import Writer
from tests.core.test_fold_from_commits import EVENTS, LOSING, Changelog, by_definition, written
from tests.execution.standbys import CHANGELOG, NAMES, StandbyHost, chain, position_at, state_of
from tests.logs.lagging_log import LaggingLog

GROWS = st.lists(st.integers(1, 60), max_size=30)  # how much is there, and how much is done, in turn


def check(host: StandbyHost, log: Changelog, shown: int) -> None:
    """Check that a store is the committed state at its position, and that its position is a commit that counts."""
    position, counted = host.held, by_definition(log)
    if position is None:
        assert host.state == {}
        return
    assert position.offset in counted, f"{position} is not a commit that counts, or not yet"
    assert position.offset < shown, f"{position} is not there yet"
    assert position == position_at(position.offset, log.messages[position.offset])
    assert host.state == state_of([data for offset, data in counted.items() if offset <= position.offset])


def follow(host: StandbyHost, log: Changelog, grows: list[int], *, loads: bool = False) -> None:
    """Let a changelog grow while a standby follows, now and then killed; check its store after each thing it does."""
    shown = 0
    for number, grow in enumerate(grows):
        host.append(*log.messages[shown : shown + grow % 7])
        shown = min(shown + grow % 7, len(log.messages))
        if grow % 5 == 0:
            host.restart()
        for _ in range(grow):
            host.standby.tick()
            if not loads:  # they are there ahead of their changelog position
                check(host, log, shown)
        host.now_ms += 400 * (number % 4)
    host.append(*log.messages[shown:])
    host.work()
    check(host, log, len(log.messages))
    into = ChangelogFold(CHANGELOG, 0)
    for offset, message in enumerate(log.messages):
        into.feed(offset, message)
    assert host.standby.phase is not StandbyPhase.STOPPED, host.standby.trouble
    # what is in doubt waits for its outcome
    assert (-1 if host.held is None else host.held.offset) == into.last_offset
    assert host.standby.progress.caught_up


@settings(max_examples=300, deadline=None)
@given(EVENTS, GROWS)
@example(LOSING, [20, 20, 5])
@example(
    [("claim", 0, 0), ("data", 0, 1), ("claim", 0, 0), ("data", 1, 2), ("commit", 1, 0), ("commit", 0, 0)], [9, 50]
)
def test_its_store_is_the_committed_state_at_its_position(events: list[tuple[str, int, int]], grows: list[int]) -> None:
    """At each moment: of claims and rollbacks, repeats, attempts and bulk writes in doubt, of kills in between (R7)."""
    follow(StandbyHost(), written(events), grows)


@settings(max_examples=25, deadline=None)
@given(events=EVENTS, grows=GROWS)
@example(LOSING, [20, 20, 5])
def test_so_is_a_store_of_rocksdb(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[str, int, int]], grows: list[int]
) -> None:
    """The same with the store of production (R7)."""
    store = RocksStore(tmp_path_factory.mktemp("standby") / "task", NAMES, RocksMemory(16 << 20))
    try:
        follow(StandbyHost(store), written(events), grows)
    finally:
        store.close()


@settings(max_examples=100, deadline=None)
@given(events=EVENTS, grows=GROWS)
def test_so_is_a_store_that_takes_all_in_loads(events: list[tuple[str, int, int]], grows: list[int]) -> None:
    """A kill between loads and their position costs a second application of the same, and nothing else (R7)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(standby_store, "STANDBY_WRITE_BYTES", 0)
        follow(StandbyHost(), written(events), grows, loads=True)


def test_what_comes_during_the_catch_up_is_not_left_out() -> None:
    """A read that goes beyond the end of the beginning has more than what is asked for: the rest comes again."""
    host, messages = StandbyHost(), chain()
    host.append(*messages[:4])
    host.work(1)  # it has looked where the changelog ends
    host.append(*messages[4:])
    host.work()
    assert (host.held, host.standby.trouble) == (position_at(7, messages[7]), "")


def test_it_is_not_ready_before_its_store_has_a_position() -> None:
    """A restore without a position is lost at its end: a task that started there would read all again (R1)."""
    host, messages = StandbyHost(), chain()
    host.append(*messages)
    assert host.standby.progress.behind == -1
    while host.held is None:
        assert host.standby.progress.behind == -1
        host.work(1)
    assert host.standby.progress.behind == 0
    host.append(messages[-2])  # it has read this, and a task would, too
    host.work()
    assert host.standby.progress.behind == 1


def test_a_changelog_without_a_commit_is_soon_read() -> None:
    """There is nothing to hold yet: a task that starts there reads what there is."""
    host = StandbyHost()
    host.append(Writer(1).claim())
    host.work()
    assert (host.held, host.standby.progress.behind) == (None, 1)


def test_what_is_not_committed_stays_in_memory() -> None:
    """Data waits for its commit, and a rollback discards it (R7, C2)."""
    host, first, second = StandbyHost(), Writer(1), Writer(2)
    host.append(first.claim(), first.commit(1), first.data(b"a"))
    host.work()
    assert host.state == {}
    host.append(second.claim(), first.commit(2, previous=1))  # a zombie's
    host.work()
    assert (host.state, host.held and host.held.checkpoint_id) == ({}, 1)
    host.append(second.data(b"b"), second.commit(2, previous=1))
    host.work()
    assert (host.state, host.held and host.held.checkpoint_id) == ({(0, b"b"): b"v"}, 2)


def test_it_goes_on_where_its_store_is() -> None:
    """A standby that is started again reads from its changelog position on, and applies only what is behind (R1)."""
    host, messages = StandbyHost(), chain()
    host.append(*messages[:6])
    host.work()
    assert host.held == position_at(5, messages[5])
    host.restart()
    host.append(*messages[6:])
    host.work()
    assert (host.standby.counters["restored records"], host.standby.counters["wipes"]) == (1, 0)
    assert host.held == position_at(7, messages[7])


def test_overtaken_by_a_trim_it_restores() -> None:
    """A standby whose next message was trimmed wipes its store and restores from the present changelog (K2)."""
    host, writer = StandbyHost(), Writer(1)
    messages = [writer.claim(), writer.commit(0), writer.data(b"old"), writer.commit(1, previous=0)]
    host.append(*messages)
    host.work()
    assert host.state == {(0, b"old"): b"v"}
    messages = [writer.data(b"a"), writer.commit(2, previous=1), writer.data(b"b")]
    host.append(*messages, writer.commit(3, previous=2, cursor=b""))
    host.log.trim(CHANGELOG, 5)  # a round begins with the commit at 5
    host.work()
    assert (host.state, host.standby.counters["standbys overtaken by a trim"]) == ({(0, b"b"): b"v"}, 1)
    assert (host.held and host.held.checkpoint_id, host.standby.progress.caught_up) == (3, True)


def test_overtaken_while_it_was_away_it_restores() -> None:
    """The start judges the store as that of a task does: its commit is no longer in the log (R1)."""
    host, messages = StandbyHost(), chain()
    host.append(*messages[:4])
    host.work()
    writer = Writer(2)
    host.append(*messages[4:], writer.claim(), writer.data(b"z"), writer.commit(4, previous=3, cursor=b""))
    host.log.trim(CHANGELOG, 7)
    host.restart()
    host.work()
    assert host.standby.counters["wipes"] == 1
    assert (host.state, host.held and host.held.checkpoint_id) == ({(0, b"z"): b"v"}, 4)


def test_before_a_round_is_read_to_its_end_the_store_names_no_commit() -> None:
    """From within the log, not all keys have come yet: a start must not take such a store for a state (R1)."""
    host, writer = StandbyHost(), Writer(1)
    host.append(writer.claim(), writer.commit(0), writer.data(b"a"), writer.commit(1, previous=0))
    host.append(writer.data(b"b"), writer.commit(2, previous=1))
    host.log.trim(CHANGELOG, 3)
    host.work()
    assert (host.held, host.standby.phase, host.standby.progress.caught_up) == (None, StandbyPhase.RESTORING, False)
    host.append(writer.data(b"a"), writer.commit(3, previous=2, cursor=b""))
    host.work()
    assert host.state == {(0, b"a"): b"v", (0, b"b"): b"v"}
    assert (host.held and host.held.checkpoint_id, host.standby.phase) == (3, StandbyPhase.FOLLOWING)


def test_a_store_of_another_log_is_wiped() -> None:
    """At its offset there is another message: what it holds was never committed to this log (R1)."""
    host = StandbyHost()
    host.append(*chain())
    host.work()
    other, writer = StandbyHost(host.store), Writer(5)
    other.append(*[writer.claim(), writer.commit(0)], *[writer.data(b"%d" % n) for n in range(6)])
    other.append(writer.commit(1, previous=0))
    other.work()
    assert other.standby.counters["wipes"] == 1
    assert sorted(key for _, key in other.state) == [b"%d" % n for n in range(6)]


def test_a_lagging_log_is_waited_for() -> None:
    """An empty read is no end: what comes later is read later, and nothing is left out."""
    host = StandbyHost()
    lagging: Any = LaggingLog(host.log, 3)
    host.reader = lagging
    host.restart()
    messages = chain()
    host.append(*messages)
    for _ in range(200):
        host.standby.tick()
        host.now_ms += 1
    assert host.state == state_of([(messages[n],) for n in (2, 4, 6)])
    assert host.standby.due_in_ms() == STANDBY_LOOK_MS


@pytest.mark.parametrize(("bytes_max", "first"), [(0, 1), (120, 4)])
def test_a_large_checkpoint_is_loaded_ahead_of_its_position(
    monkeypatch: pytest.MonkeyPatch, bytes_max: int, first: int
) -> None:
    """Beyond a bound its data goes into the store in pieces; the position comes last, so a kill leaves the old one."""
    monkeypatch.setattr(standby_store, "STANDBY_WRITE_BYTES", bytes_max)
    host, writer = StandbyHost(), Writer(1)
    messages = [writer.claim(), writer.commit(0), *[writer.data(b"%d" % n) for n in range(5)]]
    messages.append(writer.commit(1, previous=0))
    host.append(*messages)
    seen = []
    while host.standby.tick():
        seen.append((len(host.state), host.held and host.held.checkpoint_id))
    assert seen[-1] == (5, 1)
    assert {count for count, checkpoint_id in seen if checkpoint_id != 1} == {0, *range(first, 6)}
    assert all(count == 5 for count, checkpoint_id in seen if checkpoint_id == 1)


def test_a_reset_empties_a_store_in_its_place() -> None:
    """A bulk write empties a store and fills it: what was written before the reset is gone, and the rest is there."""
    host, writer = StandbyHost(), Writer(1)
    host.append(writer.claim(), writer.commit(0), writer.data(b"old"), writer.commit(1, previous=0))
    host.append(writer.data(b"older"))
    reset = encode_data(ChangelogHeader(ChangelogType.DATA, 1, writer.seq, 0), [0], [b"new"], [b"v"], [0])
    writer.seq, writer.count = writer.seq + 1, writer.count + 1
    writer.digest = zlib.crc32(reset, writer.digest)
    host.append(reset, writer.commit(2, previous=1))
    host.work()
    assert host.standby.trouble == ""
    assert host.state == {(0, b"new"): b"v"}


def test_a_busy_changelog_does_not_hold_the_position_back() -> None:
    """Though more is always there, the position is written once a second: a kill costs no more than that."""
    host, writer = StandbyHost(), Writer(1)
    host.append(writer.claim(), writer.commit(0))
    host.work()
    positions = []
    for checkpoint_id in range(1, 20):
        host.append(writer.data(b"k"), writer.commit(checkpoint_id, previous=checkpoint_id - 1))
        host.standby.tick()
        host.standby.tick()
        host.now_ms += STANDBY_POSITION_MS / 4
        positions.append(host.held and host.held.checkpoint_id)
    assert len({*positions}) > 2  # though it was never without more to read
