"""A sink that is not deterministic is noticed after its restart, by the outputs that are visible already (D5)."""

import itertools
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete import Input, Job, Output, Record, Store, Task, Topic, utf8
from grete.api.topics.reader import PRODUCER, SEQ
from grete.errors import Halted
from grete.execution.deterministic.differing import explained
from grete.execution.deterministic.remade import (
    OutputsDiffer,
    Recovered,
    RemadePartition,
    count,
    pack_released,
    unpack_released,
)
from grete.execution.limits import REMADE_CHECKS_MAX
from grete.logs.memory import MemoryLog, MemoryLogData
from grete.ports import ExternalRecord
from grete.protocol.frames import encode_headers
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.testing import Kit
from tests.logs.lagging_log import LaggingLog

LETTERS = Topic("letters", key=utf8, value=utf8)
WORDS = Topic("words", key=utf8, value=utf8)
OUT = Topic("out", key=utf8, value=utf8)
PLACE = TopicPartition("out", 0)
CELL = encode_headers([("grete", b"1 2 j/s-0")])
OutputDelivery = Literal["transactional", "sequenced"]
OUTPUT_DELIVERIES: list[OutputDelivery] = ["transactional", "sequenced"]
chosen: Iterator[str] = iter(())  # what chance gives next


class Join(Task):
    """The example of the seed: it draws a letter for each record, and sends all that it has drawn."""

    letters = Input(LETTERS)
    drawn = Store("drawn", key=utf8, value=utf8)
    out = Output(OUT)

    def process(self, record: Record[str, str]) -> None:
        text = self.drawn.get("all", "") + next(chosen)
        self.drawn.put("all", text)
        self.out.send("all", text)


class Pass(Task):
    """A source before the task that draws."""

    letters = Input(LETTERS)
    out = Output(WORDS)

    def process(self, record: Record[str, str]) -> None:
        self.out.send("all", record.value)


class JoinWords(Join):
    letters = Input(WORDS)


def _kit(stages: list[type[Task]], output_delivery: OutputDelivery) -> Kit:
    kit = Kit(
        Job("j", stages, mode="deterministic"),
        settings=Settings(checkpoint_interval_ms=60_000, output_delivery=output_delivery),
    )
    kit.advance(20)
    return kit


def _feed(kit: Kit, count: int) -> None:
    for _ in range(count):
        kit.feed(LETTERS, "all", "x")
        kit.advance(30)


def _texts(kit: Kit) -> list[str]:
    return [record.value for record in kit.outputs(OUT)]


@pytest.mark.parametrize("output_delivery", OUTPUT_DELIVERIES)
@pytest.mark.parametrize("stages", [[Join], [Pass, JoinWords]])
def test_a_sink_that_draws_at_random_halts(
    stages: list[type[Task]], output_delivery: OutputDelivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash it makes ``axcde`` of what was visible as ``abc``: the message names the record, both versions."""
    monkeypatch.setitem(globals(), "chosen", iter("abcaxc"))
    kit = _kit(stages, output_delivery)
    _feed(kit, 3)
    assert _texts(kit) == ["a", "ab", "abc"]
    kit.crash(stages[-1])
    with pytest.raises(Halted, match=r"join.*-0 is not deterministic: .* output seq 2 in out\[0\]") as halted:
        _feed(kit, 2)
    assert "Seq 2, at offset 1: value b'ab' is visible, b'ax' was made" in str(halted.value)
    assert "start the job under another name" in str(halted.value)
    assert _texts(kit) == ["a", "ab", "abc"]


def test_the_record_that_differs_is_named_from_a_log_whose_reads_lag() -> None:
    """An empty read in the middle of the visible outputs is not their end: else the halt would not find the record."""
    data = MemoryLogData(lambda: 0)
    log = MemoryLog(data)
    log.create_topic(PLACE.topic, 1)
    for seq in range(1, 6):
        cell = encode_headers([(PRODUCER, b"j/join-0"), (SEQ, b"%d" % seq)])
        data.append(PLACE, None, b"old%d" % seq, 0, cell)
    made = [ExternalRecord(PLACE, None, b"new%d" % seq, 0) for seq in range(2, 4)]
    lagging: Any = LaggingLog(log)
    text = str(explained(OutputsDiffer(PLACE, 2, 3, made, None), "join-0", b"j/join-0", lagging))
    assert "Seq 2, at offset 1: value b'old2' is visible, b'new2' was made" in text


def _record(text: str, seq: int = 0) -> ExternalRecord:
    return ExternalRecord(PLACE, None, text.encode(), seq, CELL)


@given(
    texts=st.lists(st.text(max_size=3), min_size=1, max_size=12),
    checked=st.sets(st.integers(1, 12), min_size=1),
    cuts=st.lists(st.integers(1, 4), min_size=12, max_size=12),
    wrong=st.integers(0, 11) | st.none(),
)
def test_the_range_that_is_named_holds_the_difference(
    texts: list[str], checked: set[int], cuts: list[int], wrong: int | None
) -> None:
    """A replay without a difference raises nothing, however releases and outputs are cut; else it names a range.

    What lies behind the last release is not visible, so it may be other than before.
    """
    seqs = sorted(seq for seq in checked if seq <= len(texts))
    before = RemadePartition(PLACE)
    checks = []
    for seq, text in enumerate(texts, 1):
        before.add([_record(text)])
        if seq in seqs:
            checks.append((seq, before.digest))
    released = seqs[-1] if seqs else 0
    made = RemadePartition(PLACE, released=released)
    made.expect(checks)
    again = [text + "!" if index == wrong else text for index, text in enumerate(texts)]
    error, known = _add_all(made, [_record(text) for text in again], cuts)
    if error is None:
        assert wrong is None or not wrong < min(released, len(texts))
        assert (known, len(made.checks)) == (released, 0)
    else:
        assert wrong is not None
        assert error.first <= wrong + 1 <= error.last
        assert error.first - 1 in {0, *seqs}
        assert error.last in seqs
        assert [record.value for record in error.made] == [t.encode() for t in again[error.first - 1 : error.last]]


def _add_all(made: RemadePartition, records: list[ExternalRecord], cuts: list[int]) -> tuple[OutputsDiffer | None, int]:
    """Add the records in pieces; return what was raised, and how many of them were visible already."""
    left, known = iter(records), 0
    for cut in cuts:
        try:
            known += made.add([*itertools.islice(left, cut)])
        except OutputsDiffer as error:
            return error, known
    return None, known


def test_what_is_visible_is_left_out_of_each_partition() -> None:
    """Two partitions in one batch: of each the first records are known, and the order of the others stays."""
    other = TopicPartition("out", 1)
    made = {PLACE: RemadePartition(PLACE, released=1), other: RemadePartition(other, seq=4, released=6)}
    records = [
        _record("a"),
        _record("b")._replace(partition=other),
        _record("c"),
        _record("d")._replace(partition=other),
    ]
    left, last = count(records, made)
    assert left == [records[2]]
    assert last == {PLACE: (2, made[PLACE].digest)}
    assert made[other].seq == 6


def test_a_record_that_was_recovered_twice_is_one() -> None:
    """A zombie's repeat changes nothing; behind a gap only what follows is compared."""
    visible = Recovered()
    for seq, text in ((3, "c"), (4, "d"), (3, "other"), (7, "g")):
        visible.add(seq, 10 + seq, None, text.encode(), CELL)
    assert (visible.first, visible.last, visible.offset(7)) == (7, 7, 17)
    assert [visible.differs(seq, _record("g")) for seq in (3, 7, 8)] == [False, False, False]
    assert visible.differs(7, _record("other"))


@given(seq=st.integers(0, 2**63 - 1), seqs=st.sets(st.integers(1, 2**40), max_size=5))
def test_the_state_holds_what_is_still_to_be_compared(seq: int, seqs: set[int]) -> None:
    """As written; the release before wrote a seq alone."""
    checks = [(each, each % 2**32) for each in sorted(seqs)]
    assert unpack_released(pack_released(seq, checks)) == (seq, checks)
    assert unpack_released(seq.to_bytes(8, "big")) == (seq, [])


def test_the_state_holds_a_bounded_number_of_digests() -> None:
    """Of many releases some and the last stay: they name longer ranges."""
    checks: list[Any] = [(seq, seq) for seq in range(1, 100_000)]
    _, kept = unpack_released(pack_released(99_999, checks))
    assert len(kept) <= REMADE_CHECKS_MAX + 1
    assert kept[-1] == checks[-1]
    assert set(kept) <= set(checks)
