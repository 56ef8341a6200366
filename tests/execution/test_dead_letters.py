"""Dead letters: what a record that fails leaves behind, and where it goes."""

import re
import time
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import grete
from grete import (
    DeadLetter,
    Input,
    Job,
    Output,
    Record,
    Store,
    Task,
    Timer,
    Timers,
    int64,
    utf8,
)
from grete.job.dead_letters import letter_of
from grete.ports import LogRow
from grete.protocol.frames import decode_headers, encode_headers
from tests.execution.harness import Rig
from tests.execution.test_processor import LETTERS, TOTALS, WORDS, CountOrLetter, Keep


def test_a_dead_letter_carries_bytes_and_reason() -> None:
    """Key and value are as they came, headers are kept, and those added say what failed where."""
    rig = Rig(Job("j", stages=[CountOrLetter]))
    rig.rows("words", [(b"a", b"", 1), (b"b", b"fail", 2)], [None, encode_headers([("own", b"1")])])
    letter = rig.processor.take_external()[-1]
    assert (letter.partition.topic, letter.key, letter.value, letter.timestamp_ms) == ("letters", b"b", b"fail", 2)
    *headers, (last, shown) = decode_headers(letter.headers or b"")
    assert tuple(headers) == (
        ("own", b"1"),
        ("grete.error", b"ValueError: told to"),
        ("grete.stage", b"count-or-letter"),
        ("grete.partition", b"0"),
        ("grete.topic", b"words"),
        ("grete.source", b"words[0]"),
        ("grete.offset", b"1"),
        ("grete.index", b"1"),
    )
    assert last == "grete.traceback"
    assert shown is not None
    assert re.search(r'line \d+, in process\n *raise ValueError\("told to"\)\nValueError: told to$', shown.decode())
    assert f"{Path(grete.__file__).parent}/" not in shown.decode()


def test_a_letter_is_not_dated_ahead_of_the_clock() -> None:
    """A broker may refuse a record of the future, and its letter with it: that has the clock's time, and says both."""
    rig = Rig(Job("j", stages=[CountOrLetter]))
    begun_ms, future_ms = time.time_ns() // 1_000_000, 4_102_444_800_000  # the year 2100
    rig.rows("words", [(b"b", b"fail", future_ms)])
    (letter,) = rig.processor.take_external()
    assert begun_ms <= letter.timestamp_ms <= time.time_ns() // 1_000_000
    assert dict(decode_headers(letter.headers or b""))["grete.timestamp"] == b"%d" % future_ms
    row = LogRow(0, 0, letter.timestamp_ms, letter.key, letter.value, letter.headers)
    found = letter_of(letter.partition, row)
    assert found is not None
    assert found.timestamp_ms == future_ms  # with which it is sent again


def test_records_that_cannot_be_decoded_are_dead_letters() -> None:
    """A serde failure sends the bytes themselves to the dead-letter topic, and the batch goes on."""
    rig = Rig(Job("j", stages=[CountOrLetter]))
    rig.rows("words", [(b"\xff", b"x", 1), (b"a", b"", 2)])
    first, second = rig.processor.take_external()
    assert (first.key, first.value) == (b"\xff", b"x")
    assert b"serde utf8 cannot decode bytes" in (dict(decode_headers(first.headers or b""))["grete.error"] or b"")
    assert second.key == b"a"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=20), st.booleans())
def test_a_dead_letter_leaves_nothing_behind(records: list[tuple[str, bool]], internal: bool) -> None:
    """State, timers and outputs are those of a run without the records that failed, letters aside."""

    class Busy(Task):
        words = Input(WORDS, errors=DeadLetter(LETTERS))
        counts = Store("counts", key=utf8, value=int64)
        timers = Timers()
        out = Output(TOTALS)

        def process(self, record: Record[str, str]) -> None:
            n = self.counts.get(record.key, 0) + 1
            if n == 3:
                self.counts.delete(record.key)
            else:
                self.counts.put(record.key, n)
            self.timers.cancel(1000 + n - 1, record.key)
            self.timers.schedule(1000 + n, record.key)
            self.out.send(record.key, n, headers=(("n", b"%d" % n),) if n == 2 else ())
            if record.value == "fail":
                raise ValueError

        def on_timer(self, timer: Timer) -> None: ...

    class ReadTotals(Keep):
        lines: Any = Input(TOTALS)

    def run(some: list[tuple[str, bool]]) -> object:
        rig = Rig(Job("j", stages=[Busy, ReadTotals] if internal else [Busy], partitions=2))
        rows = [(key.encode(), b"fail" if fail else b"", 10 + i) for i, (key, fail) in enumerate(some)]
        rig.rows("words", rows)
        external = [record for record in rig.external() if record[0] != "letters"]
        frames = [(partition, count) for partition, count, _ in rig.processor.take_frames()]
        rig.freeze()
        items = [i for i in rig.overlay.frozen_items() if i[1] != b"stream time" and not i[1].startswith(b"event time")]
        return [r[:3] for r in external], sorted(frames), [item for item in items if item[2] is not None]

    assert run(records) == run([record for record in records if not record[1]])
