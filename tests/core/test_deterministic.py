"""Deterministic mode, stepped by hand: decisions and leases, merging, what comes again, releases (D1 to D5)."""

from dataclasses import replace
from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework.core import actions as do
from framework.core import events as on
from framework.core.merge import Merge
from framework.errors import Fenced, Halted
from protocol.changelog import ChangelogType, decode_changelog_header, decode_decision, decode_lease
from protocol.control import decode_heartbeat
from protocol.envelope import MessageType, decode_header
from protocol.ids import TopicPartition
from tests.core.logical_scenario import ALL, OUTSIDE, Logical, Writer
from tests.core.scenario import A0, A1, INNER, LIMITS, OUT, SINK, SOURCE, Log, Producer, T

TO = SOURCE.outputs
ALONE = replace(SOURCE, outputs=())  # a source that only writes to the outside


def kinds(task: Logical) -> list[ChangelogType]:
    """Return the types of the messages in the task's changelog."""
    return [decode_changelog_header(value).type for _, value in task.log.rows[task.task.changelog]]


def source() -> Logical:
    """Return SOURCE, running, at log time 1,050 ms, with a lease."""
    return Logical(Log(), SOURCE).start()


def inner(**limits: int) -> tuple[Logical, Writer, Writer]:
    """Return INNER, running, and its two producers."""
    log = Log()
    return Logical(log, INNER, limits=replace(LIMITS, **limits)).start(), Writer(log, A0), Writer(log, A1)


# --- a source: decisions and leases (D2) ------------------------------------------------------------------------------


def test_nothing_is_sent_before_the_decision_is_acknowledged() -> None:
    """User code runs at once, but what it makes of a batch is sent when its decision is in the changelog (D2)."""
    task = source()
    task.hold = {do.AppendChangelog}
    task.take("x", "y")
    assert task.names == ["x", "y"]
    assert task.frames(TO[0]) == []
    task.release()
    assert task.frames(TO[0]) == [(1, [1_050_000, 1_050_001])]


def test_nothing_is_sent_for_a_decision_behind_anothers_claim() -> None:
    """A decision that a newer generation's claim precedes is void, and its sender gives up (D2, C3)."""
    task = source()
    task.hold = {do.AppendChangelog}
    task.take("x")
    task.log.claim(SOURCE, 2)
    with pytest.raises(Fenced, match="generation 2"):
        task.release()
    assert task.frames(TO[0]) == []


@pytest.mark.parametrize("same_host", [True, False])
def test_a_successor_replays_what_was_decided(same_host: bool) -> None:
    """Decided and not committed: the same rows at the same times, then on from there (D2)."""
    task = source()
    task.take("x", "y")
    task.take("z")
    after = task.successor(same_host=same_host).start()
    assert after.processed == task.processed
    assert after.frames(TO[0])[2:] == after.frames(TO[0])[:2]
    assert after.core.external[TopicPartition("in", 0)] == 3
    after.take("new")
    assert after.processed[-1][1] > task.processed[-1][1]


def test_a_void_decision_is_not_replayed() -> None:
    """What a zombie decides behind its successor's claim does not count (D2, C2)."""
    task = source()
    task.hold = {do.AppendChangelog}
    task.take("x")
    after = task.successor()
    after.start()
    held = task.holding(do.AppendChangelog)
    task.log.append(SOURCE.changelog, *held.before, held.value)
    assert after.successor(nonce=b"a third process!").start().processed == []


def test_a_commit_takes_decisions_with_it() -> None:
    """What a commit includes is not replayed, what was decided behind it is (D2, D4)."""
    task = source()
    task.take("x")
    task.tick(100)
    assert task.core.committed is not None
    task.take("y")
    assert task.successor().start().names == ["y"]


def test_no_decision_stands_between_a_freeze_and_its_commit() -> None:
    """A restart reads the changelog from the commit on: what is decided during a commit is appended behind it (D2)."""
    task = source()
    task.hold = {do.WriteData}
    task.tick(100)
    task.take("x")
    assert ChangelogType.DECISION not in kinds(task)
    task.release()
    behind = kinds(task)[-2:]
    assert behind[-1] is ChangelogType.DECISION
    assert task.successor().start().names == ["x"]


def test_nothing_is_committed_before_all_is_replayed() -> None:
    """A commit in the middle of a replay would take decisions with it that are not in its state (D2)."""
    task = source()
    task.take("x")
    task.take("y")
    after = task.successor()
    after.hold = {do.ProcessExternal}
    after.start()
    after.tick(1_000)
    assert not any(isinstance(action, do.Freeze) for action in after.done)


def test_a_successor_starts_above_the_lease() -> None:
    """Whatever its predecessor has promised by heartbeats, nothing new comes at or below it (D2)."""
    task = source()
    task.tick(5)
    [lease] = [decode_lease(v).t for _, v in task.log.rows[SOURCE.changelog] if v[0] & 15 == ChangelogType.LEASE]
    assert lease == 1_250_000
    assert max(task.heartbeats(TO[0])) <= lease
    after = task.successor().start()
    after.take("x")
    assert after.processed == [("x", lease + 1, SOURCE.producer)]


def test_heartbeats_stay_within_a_lease_that_is_known_to_count() -> None:
    """A lease that is not acknowledged promises nothing (D2)."""
    task = source()
    task.tick(50)
    task.hold = {do.AppendChangelog}
    for _ in range(100):
        task.tick(5)
    assert max(task.heartbeats(TO[0])) == 1_250_000
    task.release()
    task.tick(20)
    assert max(task.heartbeats(TO[0])) > 1_500_000


def test_a_batch_is_not_overtaken_by_heartbeats() -> None:
    """While a batch waits for its decision no heartbeat passes it; with it all channels hear of its time (D1)."""
    task = source()
    task.hold = {do.AppendChangelog}
    before = task.heartbeats(TO[1])
    task.take("x", "y")
    task.tick(50)
    assert task.heartbeats(TO[1]) == before
    task.release()
    assert task.heartbeats(TO[1]) == [*before, 1_050_001]
    assert task.heartbeats(TO[0]) == before  # its last record says the same


def test_time_does_not_go_back_with_the_logs_clock() -> None:
    """Logical time follows append times forward only, whatever the log's clock does (D2)."""
    task = source()
    task.take("x")
    task.log.now_ms -= 3_600_000
    task.take("y")
    task.mono_ms += 7
    task.take("z")
    assert [t for _, t, _ in task.processed] == [1_050_000, 1_050_001, 1_057_000]


def test_a_calm_source_beats_less_often_and_promises_ahead() -> None:
    """Without records for a second there is a heartbeat each 20 ms, but nobody waits for it (D1)."""
    task = source()
    task.take("x")
    task.tick(5)
    busy = task.core.due_in_ms(task.mono_ms)
    assert busy <= 5
    for _ in range(1_100):
        task.tick(1)
        if task.log.now_ms > 2_060:
            assert task.heartbeats(TO[0])[-1] >= task.log.now_ms * 1000
    assert task.heartbeats(TO[0])[-1] - task.heartbeats(TO[0])[-2] == 20_000


def test_a_decision_below_the_position_halts() -> None:
    """Rows are never taken twice: a changelog that says so is damaged (D2)."""
    task = source()
    task.take("x")
    [value] = [v for _, v in task.log.rows[SOURCE.changelog] if v[0] & 15 == ChangelogType.DECISION]
    header = decode_changelog_header(value)
    assert decode_decision(value).first_offset == 0
    again = bytearray(value)
    again[5:13] = (header.seq + 1).to_bytes(8, "big")
    task.log.append(SOURCE.changelog, bytes(again))
    with pytest.raises(Halted, match="from offset 0 on, but what stands at 1"):
        task.successor().start()


# --- merging by logical time (D1) -------------------------------------------------------------------------------------


def test_a_record_waits_until_every_channel_has_passed_it() -> None:
    """A head goes when all other channels have said that nothing at or below its key is still to come (D1)."""
    task, a0, a1 = inner()
    a0.send(("x", 100, A0))
    task.read()
    assert task.processed == []
    a1.beat(99)
    task.read()
    assert task.processed == []
    a1.beat(100)
    task.read()
    assert task.processed == [("x", 100, A0)]


def test_equal_times_go_by_source_then_channel() -> None:
    """The order is total: (t, source, channel, seq), whatever came first (D1)."""
    task, a0, a1 = inner()
    a1.send(("second", 100, 7), ("fourth", 100, 8))
    a0.send(("first", 100, 7), ("third", 100, 8))
    task.read()
    assert task.names == ["first", "second", "third"]  # a0 may bring another one of (100, 8)
    a0.beat(100)
    task.read()
    assert task.names == ["first", "second", "third", "fourth"]


def test_heartbeats_are_forwarded_when_all_up_to_them_is_processed() -> None:
    """An inner task promises what its inputs have promised, and no more than what it has processed (D1)."""
    task, a0, a1 = inner()
    a0.send(("x", 100, A0))
    a1.beat(250)
    task.read()
    assert (task.heartbeats(OUT[0]), task.heartbeats(OUT[1])) == ([99], [99])  # another one of 100 may come
    a0.beat(200)
    task.read()
    assert task.heartbeats(OUT[1]) == [99, 200]
    assert task.frames(OUT[0]) == [(1, [100])]


def test_timers_fire_before_downstream_hears_of_their_time() -> None:
    """Time passes in the task first: what its timers send lies above the last heartbeat (D1)."""
    task, a0, a1 = inner()
    task.timer = 150
    a0.beat(100)
    a1.beat(100)
    task.read()
    task.uptos.clear()
    a0.beat(149)
    a1.beat(149)
    task.read()
    assert task.uptos == []
    task.hold = {do.ProcessRecords}
    a0.beat(200)
    a1.beat(200)
    task.read()
    assert task.heartbeats(OUT[0])[-1] == 149
    task.release()
    assert (task.uptos, task.heartbeats(OUT[0])[-1]) == ([200], 200)


Frames = list[list[list[tuple[str, int, int]]]]


@st.composite
def channels(draw: st.DrawFn) -> Frames:
    """Return for each of two channels frames of records, in order of time."""
    each = []
    for channel in range(2):
        keys = sorted(draw(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 2)), max_size=12)))
        records = [(f"{channel}.{number}", *key) for number, key in enumerate(keys)]
        cuts = [0, *sorted(draw(st.sets(st.integers(1, 11), max_size=4))), len(records)]
        each.append([records[a:b] for a, b in pairwise(cuts) if records[a:b]])
    return each


@given(frames=channels(), turns=st.lists(st.booleans(), max_size=20), together=st.booleans())
def test_the_order_does_not_depend_on_arrival(frames: Frames, turns: list[bool], together: bool) -> None:
    """However frames are cut and whichever comes first, records are processed in the order of their keys (D1)."""
    task, *writers = inner(early_memory_bytes_max=1 << 20)
    left = [list(each) for each in frames]
    for turn in [*turns, *[False] * 12, *[True] * 12]:
        if left[turn]:
            writers[turn].send(*left[turn].pop(0))
            if not together:
                task.read()
    for writer in writers:
        writer.beat(1_000)
    task.read()
    keyed = [(t, s, channel, n) for channel, each in enumerate(frames) for n, (_, t, s) in enumerate(chain(*each))]
    assert task.names == [f"{channel}.{number}" for _, _, channel, number in sorted(keyed)]


def test_beyond_the_bound_a_channel_skips_and_is_read_again() -> None:
    """Queues are bounded: what does not fit is read again once the channel's queue is empty (1.8 D1)."""
    task, a0, a1 = inner(early_memory_bytes_max=1)
    first, second = a0.send(("x", 100, A0)), a0.send(("y", 110, A0))
    a0.beat(200)
    task.read()
    assert task.core.merge.channels[0].skip_offset == second
    assert task.core.seen["frames skipped"] == 1
    a1.send(("z", 105, A1))
    a1.beat(200)
    task.read()
    assert (first, task.names) == (0, ["x"])
    seeks = [action for action in task.done if isinstance(action, do.Seek)]
    assert seeks[-1] == do.Seek(T, second)
    task.read()
    assert task.names == ["x", "z", "y"]


def test_a_producer_that_goes_back_in_time_halts() -> None:
    """A new record at or below what its channel has promised breaks the order of those before it (D1)."""
    task, a0, _ = inner()
    a0.beat(200)
    a0.send(("x", 200, A0))
    with pytest.raises(Halted, match="went back in time"):
        task.read()


@pytest.mark.parametrize("lost", ["frame", "heartbeat"])
def test_a_lost_record_halts(lost: str) -> None:
    """A gap in the seqs of a channel shows before a frame and before a heartbeat (D3)."""
    task, a0, _ = inner()
    a0.next_seq = 3
    a0.send(("x", 100, A0)) if lost == "frame" else a0.beat(100)
    with pytest.raises(Halted, match="expected seq 1: a record"):
        task.read()


def test_messages_of_aligned_mode_halt() -> None:
    """A frame without logical time comes from a task that is not deterministic (D6)."""
    task, _, _ = inner()
    Producer(task.log, A0).send(1, "x")
    with pytest.raises(Halted, match="no logical time"):
        task.read()


# --- what comes again (D3) --------------------------------------------------------------------------------------------


def test_records_that_come_again_are_dropped() -> None:
    """A restarted producer makes the same again; only what is new counts, however it is cut (D3)."""
    task, a0, a1 = inner()
    a0.send(("x", 100, A0), ("y", 110, A0))
    after = a0.again()
    after.send(("x", 100, A0))
    after.send(("y", 110, A0), ("z", 120, A0))
    a1.beat(300)
    task.read()
    assert task.names == ["x", "y", "z"]
    assert task.core.seen["known records dropped"] == 2


def test_a_record_that_comes_again_differently_halts_naming_both() -> None:
    """A task that was not deterministic is caught, with the record and both of its versions (D3)."""
    task, a0, a1 = inner()
    a0.send(("x", 100, A0), ("y", 110, A0))
    after = a0.again()
    after.send(("x", 100, A0), ("other", 110, A0))
    a1.beat(300)
    with pytest.raises(Halted, match="record seq 2 was received before with value b'y', now b'other'"):
        task.read()


def test_a_digest_that_differs_halts_after_a_restart() -> None:
    """A restarted reader has the digest of what it has processed, not the records: it halts all the same (D3)."""
    task, a0, a1 = inner()
    a0.send(("x", 100, A0), ("y", 110, A0))
    a0.beat(300)
    a1.beat(300)
    task.read()
    task.tick(100)
    after = a0.again()
    after.send(("x", 100, A0), ("other", 110, A0))
    after.send(("z", 400, A0))
    reader = task.successor().start()
    with pytest.raises(Halted, match="up to seq 2 are not what was received before"):
        reader.read()


# --- commits (D4) -----------------------------------------------------------------------------------------------------


def test_a_restart_goes_on_from_what_was_processed() -> None:
    """Received is not processed: the resume offset is the first frame with a record that is not (D3, D4)."""
    task, a0, a1 = inner()
    a0.send(("x", 100, A0), ("y", 200, A0))
    at = a0.send(("z", 300, A0))
    a1.beat(150)
    task.read()
    task.tick(100)
    assert (task.names, task.core.merge.channels[0].received) == (["x"], 3)
    commit = task.log.commits(INNER)[-1]
    assert commit.deterministic is not None
    assert [(c.seq, c.recovery_offset) for c in commit.inputs[0].channels] == [(1, 0), (0, 3)]
    assert [front.t for front in commit.deterministic.fronts] == [199, 150]
    after = task.successor().start()
    a1.beat(400)
    after.read()
    assert (at, after.names) == (1, ["y", "z"])


def test_a_commit_holds_its_digests() -> None:
    """A commit has the digest of each channel up to the last record processed, in the middle of a frame, too (D3)."""
    task, a0, a1 = inner()
    one = Writer(Log(), A0)
    one.send(("x", 100, A0))
    a0.send(("x", 100, A0), ("y", 200, A0))
    a1.beat(150)
    task.read()
    task.tick(100)
    deterministic = task.log.commits(INNER)[-1].deterministic
    assert deterministic is not None
    assert [front.digest for front in deterministic.fronts] == [one.digest, 0]


def test_a_stop_commits_and_exits() -> None:
    """A graceful stop commits what is processed, waits for nobody, and leaves the rest to the next start (R6)."""
    task, a0, a1 = inner()
    a0.send(("x", 100, A0), ("y", 200, A0))
    a1.beat(150)
    task.read()
    task.step(on.Stop())
    assert task.exit is not None
    assert task.state == [] or task.names == ["x"]
    after = task.successor().start()
    a1.beat(300)
    after.read()
    assert after.names == ["y"]


# --- sinks (D5) -------------------------------------------------------------------------------------------------------


def sink() -> tuple[Logical, Writer]:
    """Return a sink, running, and one of its producers; the other one has promised a lot."""
    log = Log()
    (b0, partition), (b1, _) = SINK.channels
    Writer(log, b1, partition).beat(10_000)
    return Logical(log, SINK, sink=True).start(), Writer(log, b0, partition)


def test_outputs_leave_at_once_one_release_at_a_time() -> None:
    """What is made while a release is on its way gathers for the next one; no commit is waited for (D5)."""
    task, b0 = sink()
    task.hold = {do.AppendChangelog}
    b0.send(("x", 100, A0))
    b0.beat(100)
    task.read()
    b0.send(("y", 110, A0))
    b0.send(("z", 120, A0))
    b0.beat(120)
    task.read()
    assert (task.outside, task.names) == ([], ["x", "y", "z"])
    task.hold = set()
    task.release()
    assert task.outside == ["x", "y", "z"]
    assert kinds(task)[-2:] == [ChangelogType.RELEASE] * 2


def test_what_was_released_is_known_after_a_restart() -> None:
    """The releases since the last commit say up to where outputs are outside: made again, they are dropped (D5)."""
    task, b0 = sink()
    b0.send(("x", 100, A0), ("y", 110, A0))
    b0.beat(200)
    task.read()
    after = task.successor().start()
    assert after.core.released == {OUTSIDE: 2}
    after.tick(100)
    assert after.successor(nonce=b"a third process!").start().core.released == {}  # it is in the state since


def test_what_waits_at_a_freeze_leaves_with_the_commit() -> None:
    """It is in the committed state, so it will not be made again: it must leave with the commit (D5)."""
    task, b0 = sink()
    task.hold = {do.AppendChangelog}
    b0.send(("x", 100, A0))
    b0.beat(100)
    task.read()
    b0.send(("y", 110, A0))
    b0.beat(110)
    task.read()
    task.tick(100)
    task.hold = set()
    task.release()
    commits = [a for a in task.done if isinstance(a, do.AppendChangelog) and a.value[0] & 15 == ChangelogType.COMMIT]
    assert commits[-1].outputs == 1
    assert task.outside == ["x", "y"]


def test_a_source_that_is_a_sink_decides_and_releases_in_one_append() -> None:
    """One round trip for a job of one stage: the decision stands right before the release of what it has made (D5)."""
    task = Logical(Log(), ALONE, sink=True).start()
    begin = len(task.done)
    task.take("x")
    appends = [action for action in task.done[begin:] if isinstance(action, do.AppendChangelog)]
    assert [append.value[0] & 15 for append in appends] == [ChangelogType.RELEASE]
    assert [value[0] & 15 for value in appends[0].before][-1:] == [ChangelogType.DECISION]
    assert task.outside == ["x"]


def test_sends_carry_seqs_and_promises_hold() -> None:
    """Frames and heartbeats of a channel carry its next seq, so that what is lost shows (D3)."""
    task = source()
    task.take("x", "y")
    task.tick(20)
    messages = [(decode_header(value), value) for _, value in task.log.rows[TO[0]]]
    last = [decode_heartbeat(value) for header, value in messages if header.type is MessageType.HEARTBEAT][-1]
    assert (last.header.seq, last.source) == (3, ALL)


def test_a_merge_without_records_takes_nothing() -> None:
    """Nothing was promised: nothing goes, and no time has passed."""
    assert Merge("t", INNER.channels, 1).take() == ([], -1)
