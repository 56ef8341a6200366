"""Event time in deterministic mode, stepped by hand: the place of watermarks in the merged order, idleness (E2, E4)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete.core import actions as do
from grete.core import events as on
from grete.core.deterministic.logical_watermarks import STEP_US, messages, step_at
from grete.errors import Halted
from grete.protocol.changelog import ChangelogType, decode_changelog_header
from grete.protocol.control import decode_watermark, encode_watermark
from grete.protocol.envelope import MessageType, decode_header
from grete.protocol.notes import IdleNote, decode_note
from tests.core.deterministic.scenario import Logical, inner
from tests.core.streams import A0, A1, IN, SOURCE, Log, T

G = STEP_US
MERGED, ALONG = SOURCE.outputs[:2]


def merged(task: Logical) -> list[tuple[int, list[tuple[int, int, bool]], int]]:
    """Return (t, of each channel (producer, event time, idle), records before) of what was merged."""
    return [(m.t, [(key[0], watermark, idle) for key, watermark, idle in m.marks], n) for m, n in task.merged]


@given(st.lists(st.tuples(st.integers(0, 99), st.booleans()), min_size=1, max_size=6))
def test_messages_say_what_was_told(told: list[tuple[int, bool]]) -> None:
    """The flag of a message belongs to its last watermark, however idle and active alternate."""
    advances = [on.Advance(number, watermark, idle) for number, (watermark, idle) in enumerate(told)]
    found = []
    for message in map(decode_watermark, messages(advances, 1, 2, 3, 4)):
        assert message.times is not None
        for t, watermark in zip(message.times, message.watermarks, strict=True):
            found.append(on.Advance(t, watermark, message.idle and t == message.times[-1]))
    assert found == advances


def test_a_step_ends_at_or_after_its_times() -> None:
    """A time that is the end of a step belongs to it."""
    assert [step_at(t) for t in (1, G - 1, G, G + 1)] == [G, G, G, 2 * G]


def test_watermarks_come_behind_the_records_of_their_time() -> None:
    """And before all later ones, whatever their channel, in whichever message they came (E2)."""
    task, a0, a1 = inner()
    a0.watermarks((G, 10), (2 * G, 20))
    a0.send(("x", G, A0), ("y", G + 1, A0), ("z", 2 * G + 1, A0))
    a1.send(("u", G, A1))
    a1.watermarks((2 * G, 7), idle=True)
    task.read()
    assert (task.names, task.merged) == (["x", "u"], []), "a1 may bring another one of that time"
    a1.progress(3 * G)
    a0.progress(3 * G)
    task.read()
    assert task.names == ["x", "u", "y", "z"]
    assert merged(task) == [(G, [(A0, 10, False)], 2), (2 * G, [(A0, 20, False), (A1, 7, True)], 3)]


def test_known_watermarks_are_dropped() -> None:
    """Those that come again, and those of a time that the channel has passed: a function of the channel alone (E2)."""
    task, a0, a1 = inner()
    a0.watermarks((G, 10))
    a0.progress(2 * G)
    a0.watermarks((G, 10), (2 * G, 20), (3 * G, 30))
    a0.again().watermarks((G, 10), (3 * G, 30))
    a0.progress(4 * G)
    a1.progress(4 * G)
    task.read()
    assert [(t, marks) for t, marks, _ in merged(task)] == [(G, [(A0, 10, False)]), (3 * G, [(A0, 30, False)])]
    assert task.core.seen["known watermarks dropped"] == 1


def test_a_commit_resumes_at_the_first_watermark_that_is_not_processed() -> None:
    """It is read again after a restart, and those before it are known (D3)."""
    task, a0, a1 = inner()
    a0.watermarks((G, 10))
    waiting = a0.watermarks((2 * G, 20))
    a0.progress(3 * G)
    a1.progress(G)
    task.read()
    task.tick(100)
    assert task.core.commits.committed is not None
    [entry] = task.core.commits.committed.inputs
    frontiers = task.core.commits.committed.deterministic.frontiers if task.core.commits.committed.deterministic else ()
    assert [c.recovery_offset for c in entry.channels] == [waiting, 4]
    assert [(f.producer, f.t) for f in frontiers] == [(A0, 2 * G - 1), (A1, G)]
    after = task.successor().start()
    a0.again().watermarks((G, 10), (2 * G, 20))
    a1.progress(3 * G)
    after.read()
    assert [(t, marks) for t, marks, _ in merged(after)] == [(2 * G, [(A0, 20, False)])]


def test_beyond_the_bound_watermarks_are_skipped_and_read_again() -> None:
    """A channel with enough that waits for others skips; what waits for its own frame is admitted (D1)."""
    task, a0, a1 = inner(early_memory_bytes_max=0)
    a0.watermarks((G, 1), (2 * G, 2))
    a0.watermarks((3 * G, 3))
    a0.progress(3 * G)
    a0.watermarks((4 * G, 4))
    a0.watermarks((5 * G, 5))
    a0.progress(9 * G)
    task.read()
    assert (task.core.seen["watermarks"], task.core.seen["watermarks skipped"]) == (2, 1)
    a1.progress(9 * G)
    task.read()
    task.read()
    assert [t for t, _, _ in merged(task)] == [G, 2 * G, 3 * G, 4 * G, 5 * G]
    assert task.core.merge.bytes == 0


def test_a_watermark_behind_a_lost_record_halts() -> None:
    """And one without logical times does not belong here (D3, D6)."""
    task, a0, _ = inner()
    a0.next_seq = 3
    a0.watermarks((G, 10))
    with pytest.raises(Halted, match="expected seq 1: a record before the watermark was lost"):
        task.read()
    task, a0, _ = inner()
    task.log.append(T, encode_watermark(A0, 1, 1, 1, idle=False, watermarks=(5,)))
    with pytest.raises(Halted, match="no logical time"):
        task.read()


def timed() -> Logical:
    """Return a source that tells its event time to MERGED, whose reader merges, and to ALONG, whose reader does not."""
    merged_outputs = frozenset((MERGED,))
    wiring = replace(SOURCE, keeps_time=True, timed_outputs=SOURCE.outputs, merged_outputs=merged_outputs)
    return Logical(Log(), wiring).start()


def test_event_time_goes_before_the_frames_or_behind_them() -> None:
    """A consumer that merges must know before time passes; one that takes what comes must not know before (E2)."""
    task = timed()
    task.route = lambda name: MERGED if name == "x" else ALONG
    task.advances = [on.Advance(G, 10, idle=False), on.Advance(2 * G, 20, idle=True), on.Advance(3 * G, 30, idle=False)]
    task.take("x", "y")
    kinds = [[decode_header(v).type for _, v in task.log.rows[partition]] for partition in (MERGED, ALONG)]
    assert kinds[0][:3] == [MessageType.WATERMARK, MessageType.WATERMARK, MessageType.FRAME]
    assert kinds[1][:3] == [MessageType.FRAME, MessageType.WATERMARK, MessageType.WATERMARK]
    assert task.watermarks(MERGED) == [(G, 10, False), (2 * G, 20, True), (3 * G, 30, False)]
    seqs = [decode_header(v).seq for _, v in task.log.rows[ALONG]]
    assert seqs[:3] == [1, 2, 2]


def test_what_comes_of_an_idle_input_waits_for_the_note() -> None:
    """Only a clock knows of it, so it is logged first, with a time above all before; a successor replays it (E4)."""
    task = timed()
    task.take("x")
    task.hold = {do.AppendChangelog}
    task.advances = [on.Advance(G, 10, idle=True)]
    task.step(on.InputIdle(IN, task.mono_ms * 1_000))
    assert task.watermarks(MERGED) == []
    task.release()
    assert task.watermarks(MERGED) == [(G, 10, True)]
    notes = [v for _, v in task.log.rows[SOURCE.changelog] if decode_changelog_header(v).type is ChangelogType.NOTE]
    [(_, t)] = task.idle
    assert task.all(do.ProcessIdle) == [do.ProcessIdle(IN, t)]
    assert [decode_note(note) for note in notes] == [IdleNote(*IN, t)]
    assert t > task.processed[-1][1]
    after = task.successor().start()
    assert (after.idle, after.names) == ([(IN, t)], ["x"])
    assert after.core.seen["notes replayed"] == 1
    after.take("y")
    assert after.processed[-1][1] > t


def test_the_end_of_an_input_is_logged_and_replayed() -> None:
    """A drained job's input has ended: a successor fires there what fired there (E7)."""
    task = timed()
    task.take("x")
    task.step(on.InputIdle(IN, task.mono_ms * 1_000, ended=True))
    (told,) = task.all(do.ProcessIdle)
    assert told.ended
    notes = [v for _, v in task.log.rows[SOURCE.changelog] if decode_changelog_header(v).type is ChangelogType.NOTE]
    assert [decode_note(note) for note in notes] == [IdleNote(*IN, told.t, ended=True)]
    after = task.successor().start()
    assert after.all(do.ProcessIdle) == [told]


def test_a_commit_takes_notes_with_it() -> None:
    """Committed notes are not replayed, and the position in the input stays (D4)."""
    task = timed()
    task.take("x")
    task.step(on.InputIdle(IN, task.mono_ms * 1_000))
    task.tick(100)
    assert task.core.commits.committed is not None
    assert task.core.commits.committed.deterministic is not None
    assert task.core.commits.committed.deterministic.last_t == task.idle[0][1]
    assert [e.offset for e in task.core.commits.committed.external] == [1]
    assert task.successor().start().idle == []


def test_time_that_is_due_is_told_before_it_passes() -> None:
    """A progress message says that no watermark up to it is still to come, either (D1)."""
    task = timed()
    task.take("x")
    task.timer = task.processed[-1][1] + 9_000
    task.take("y")
    due, task.hold = task.timer, {do.ProcessRecords}
    task.tick(50)
    assert all(t < due for t in task.progress_messages(MERGED))
    task.advances = [on.Advance(due, 10, idle=False)]
    task.release()
    assert task.watermarks(MERGED) == [(due, 10, False)]
    assert max(task.progress_messages(MERGED)) >= due
