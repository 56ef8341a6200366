"""Error policies of records, timers and windows: the rest of the job is as if what failed had never been there."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import grete
from grete import (
    DeadLetter,
    Every,
    HoppingWindow,
    Input,
    Job,
    Output,
    Record,
    SessionWindow,
    Store,
    Task,
    Timer,
    Timers,
    Topic,
    TumblingWindow,
    Window,
    int64,
    utf8,
)
from grete.api.tasks.mode import Mode
from grete.errors import TaskError
from grete.protocol.frames import decode_headers
from grete.testing import Kit
from tests.execution.harness import Rig

WORDS = Topic("words", key=utf8, value=utf8)
OUT = Topic("out", key=utf8, value=utf8)
LETTERS = Topic("letters", key=utf8, value=utf8)
Fed = list[tuple[str, str, int]]  # key, value, timestamp


def job_of(errors: Any, mode: Mode = "aligned", *, fails: bool = True, batch: bool = False) -> Job:
    """Return a job of which a part fails; without ``fails`` that part does nothing instead."""

    def refuse() -> None:
        if fails:
            raise ValueError("told to")

    class Busy(Task):
        words = Input(WORDS, errors=errors)
        counts = Store("counts", key=utf8, value=int64)
        tumbling = TumblingWindow("tumbling", 20, key=utf8, value=int64, emit=Every(7), errors=errors)
        sessions = SessionWindow("sessions", 9, key=utf8, value=int64, merge=int.__add__, errors=errors)
        timers = Timers(errors=errors)
        out = Output(OUT)

        def work(self, record: Record[str, str]) -> None:
            if record.value == "fail" and not fails:
                return
            count = self.counts.get(record.key, 0) + 1
            self.counts.put(record.key, count)
            for window in (self.tumbling, self.sessions):
                window.update(record.key, record.timestamp, lambda sum_: (sum_ or 0) + 1)
            self.timers.schedule(record.timestamp + 5, record.key)
            self.out.send(record.key, f"record {count}")
            if record.value == "fail":
                refuse()

        def on_timer(self, timer: Timer) -> None:
            if timer.at % 3 or fails:
                self.counts.put("timers", self.counts.get("timers", 0) + 1)
                self.timers.schedule(timer.at + 100, "again")
                self.out.send(timer.key, f"timer {timer.at}")
            if timer.at % 3 == 0:
                refuse()

        def on_window(self, window: Window[str, int]) -> None:
            if window.value % 2 or fails:
                self.counts.put(window.name, self.counts.get(window.name, 0) + 1)
                self.out.send(window.key, f"{window.name} {window.start} {window.value} {window.final}")
            if window.value % 2 == 0:
                refuse()

    class OneByOne(Busy):
        name = "busy"

        def process(self, record: Record[str, str]) -> None:
            self.work(record)

    class InBatches(Busy):
        name = "busy"

        def process_batch(self, records: list[Record[str, str]]) -> None:
            for record in records:
                self.work(record)

    return Job("j", stages=[InBatches if batch else OneByOne], mode=mode)


def ran(job: Job, fed: Fed, *, crashes: int = 0, seed: int = 0) -> object:
    """Return the state and the outputs but letters."""
    kit = Kit(job)
    for key, value, timestamp in fed:
        kit.feed(WORDS, key, value, timestamp=timestamp)
    kit.run(crashes=crashes, seed=seed)
    stage = job.stages[0].task
    stores = (stage.counts, stage.tumbling.panes, stage.sessions.panes)  # type: ignore[attr-defined]  # as declared above
    outputs = [(each.key, each.value, each.timestamp) for each in kit.outputs(OUT)]
    kit.stop()
    return [kit.state(store) for store in stores], outputs


records = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["", "fail"]), st.integers(0, 9)), min_size=1, max_size=25
)


@settings(max_examples=12, deadline=None)
@given(records, st.sampled_from(["drop", DeadLetter(LETTERS)]), st.integers(0, 5))
@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_what_fails_leaves_nothing(mode: Mode, steps: list[Any], errors: Any, seed: int) -> None:
    """State, timers, windows and outputs are those of code that does nothing for what fails, through crashes."""
    fed, at = [], 1_000
    for key, value, step in steps:
        at += step
        fed.append((key, value, at))
    fed.append(("end", "", at + 300))
    # a record that fails does not move event time: its timestamp is that of the one before
    timely, last = [], 1_000
    for key, value, timestamp in fed:
        last = last if value == "fail" else timestamp
        timely.append((key, value, last))
    expected = ran(job_of("fail", mode, fails=False), timely)
    assert ran(job_of(errors, mode), timely, crashes=3, seed=seed) == expected


@pytest.mark.parametrize("batch", [False, True])
def test_what_is_dropped_is_counted_and_its_error_is_kept(batch: bool) -> None:
    """Records that cannot be decoded or processed, timers and windows; not what a batch that is repeated does."""
    rig = Rig(job_of("drop", batch=batch))
    rig.rows("words", [(b"a", b"", 1), (b"\xff", b"", 2), (b"b", b"fail", 3)])
    assert rig.processor.dropped == {"late": 0, "duplicate": 0, "failed": 2}
    where = (
        r'offset 2, record 2: ValueError: told to \(.*test_error_policies\.py", line \d+\)|offset 2, record 2: Value'
    )
    assert re.search(where, rig.processor.last_failure)
    rig.rows("words", [(b"a", b"", 500)])
    rig.commit()
    assert rig.processor.dropped["failed"] > 2
    assert re.search(r"(timer|window) .*: ValueError: told to \(", rig.processor.last_failure)


def test_letters_of_timers_and_windows_say_which_one_it_was() -> None:
    """Bytes of key and value as they are in the state, the time, the error, and the traceback of the user's code."""

    class Ages(Task):
        words = Input(WORDS)
        hours = HoppingWindow("hours", 10, 5, key=utf8, value=int64, errors=DeadLetter(LETTERS))
        timers = Timers(errors=DeadLetter(LETTERS))

        def process(self, record: Record[str, str]) -> None:
            self.hours.update(record.key, record.timestamp, lambda sum_: (sum_ or 0) + 1)
            self.timers.schedule(record.timestamp + 1, f"of {record.key}")

        def on_timer(self, timer: Timer) -> None:
            raise ValueError("a timer")

        def on_window(self, window: Window[str, int]) -> None:
            raise ValueError("a window")

    rig = Rig(Job("j", stages=[Ages]))
    rig.rows("words", [(b"a", b"", 7), (b"b", b"", 10)])
    timer, window = rig.processor.take_external()
    assert (timer.partition.topic, timer.key, timer.value, timer.timestamp_ms) == ("letters", b"of a", None, 8)
    *told, (last, shown) = decode_headers(timer.headers or b"")
    assert told == [
        ("grete.error", b"ValueError: a timer"),
        ("grete.stage", b"ages"),
        ("grete.partition", b"0"),
        ("grete.timer", b"8"),
    ]
    assert last == "grete.traceback"
    assert shown is not None
    assert re.search(r'line \d+, in on_timer\n *raise ValueError\("a timer"\)', shown.decode())
    assert f"{Path(grete.__file__).parent}/" not in shown.decode()
    assert (window.key, window.value, window.timestamp_ms) == (b"a", (1).to_bytes(8), 9)
    headers = dict(decode_headers(window.headers or b""))
    assert [headers[f"grete.{name}"] for name in ("window", "start", "end", "final", "error")] == [
        *(b"hours", b"0", b"10", b"true"),
        b"ValueError: a window",
    ]


def test_an_early_result_that_a_record_gives_fails_with_the_record() -> None:
    """The record's policy decides: it is undone as a whole. The window's own is for what no record gives."""

    class Updates(Task):
        words = Input(WORDS, errors="drop")
        sums = TumblingWindow("sums", 10, key=utf8, value=int64, emit="update")
        out = Output(OUT)

        def process(self, record: Record[str, str]) -> None:
            self.sums.update(record.key, record.timestamp, lambda sum_: (sum_ or 0) + 1)

        def on_window(self, window: Window[str, int]) -> None:
            self.out.send(window.key, str(window.value))
            if window.value == 2:
                raise ValueError("two")

    rig = Rig(Job("j", stages=[Updates]))
    rig.rows("words", [(b"a", b"", 1), (b"a", b"", 2), (b"a", b"", 3)])
    assert [value for _, _, value, _ in rig.external()] == [b"1"]
    assert rig.processor.dropped["failed"] == 2
    assert dict(rig.task.sums.panes.all()) == {(0, "a"): 1}


def test_without_a_policy_the_error_says_which_there_are() -> None:
    """A timer and a window that fail stop the task, with the two ways to go on."""
    for topic_at, who in ((1, "Timers"), (30, "TumblingWindow")):

        class Fails(Task):
            words = Input(WORDS, errors="drop")
            sums = TumblingWindow("sums", 10, key=utf8, value=int64)
            timers = Timers()
            how = who

            def process(self, record: Record[str, str]) -> None:
                if self.how == "Timers":
                    self.timers.schedule(record.timestamp + 1, "k")
                else:
                    self.sums.update(record.key, record.timestamp, lambda sum_: (sum_ or 0) + 1)

            def on_timer(self, timer: Timer) -> None:
                raise ValueError("told to")

            def on_window(self, window: Window[str, int]) -> None:
                raise ValueError("told to")

        rig = Rig(Job("j", stages=[Fails]))
        said = (
            rf'ValueError: told to \(.*; to send such .* to a dead-letter topic: {who}\(…, .* count them: errors="drop"'
        )
        with pytest.raises(TaskError, match=said):
            rig.rows("words", [(b"a", b"", topic_at), (b"a", b"", 99)])
