"""One header tells who made an output; jobs of release 0.1, which wrote three, go over to it without a seam (D5)."""

from typing import Any, Literal

import pytest

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
from grete.api.topics.reader import origin_of
from grete.execution.deterministic.numbering import ONE, cell_of, content_of
from grete.execution.deterministic.outputs import LogicalOutputs
from grete.execution.deterministic.remade import Recovered
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.testing import Kit

LINES = Topic("lines", key=utf8, value=utf8)
WORDS = Topic("words", key=utf8, value=utf8)
TOTALS = Topic("totals", key=utf8, value=int64)


class Split(Task):
    lines = Input(LINES)
    words = Output(WORDS)

    def process(self, record: Record[str, str]) -> None:
        for word in record.value.split():
            self.words.send(word, word)


class Total(Task):
    words = Input(WORDS)
    counts = Store("counts", key=utf8, value=int64)
    totals = Output(TOTALS)

    def process(self, record: Record[str, str]) -> None:
        count = self.counts.get(record.key, 0) + 1
        self.counts.put(record.key, count)
        self.totals.send(record.key, count, headers=(("theirs", b"x"),) if count % 2 else ())


@pytest.mark.parametrize("output_delivery", ["transactional", "sequenced"])
@pytest.mark.parametrize("seed", range(4))
def test_a_job_of_release_0_1_goes_on_through_kills(
    output_delivery: Literal["transactional", "sequenced"], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before and after it has gone over: no output comes twice or is lost, and no comparison fails."""
    settings = Settings(checkpoint_interval_ms=200, output_delivery=output_delivery)
    kit = Kit(Job("j", [Split, Total], partitions=2, mode="deterministic"), settings=settings)
    save: Any = LogicalOutputs.save

    def of_release_0_1(self: LogicalOutputs, saved: dict[bytes, bytes]) -> None:
        save(self, saved)
        saved.pop(ONE, None)
        self._one = False

    monkeypatch.setattr(LogicalOutputs, "save", of_release_0_1)
    rounds = 12
    for number in range(rounds):
        for key in "abc":
            kit.feed(LINES, key, "to be or not to be")
        if number == rounds // 3:
            left = len(kit.outputs(TOTALS))
            kit.advance(60)
            assert len(kit.outputs(TOTALS)) > left  # outputs that the last commit does not know
            for stage in (Split, Total):
                kit.crash(stage)
            monkeypatch.setattr(LogicalOutputs, "save", save)
        kit.run(crashes=2, seed=100 * seed + number)
    found = kit.outputs(TOTALS)
    totals: dict[str, list[int]] = {}
    seqs: dict[tuple[int, str], list[int]] = {}
    for record in found:
        totals.setdefault(record.key, []).append(record.value)
        origin = origin_of(record.headers)
        assert origin is not None
        seqs.setdefault((record.partition, origin.producer), []).append(origin.seq)
        assert (record.headers[0] == ("theirs", b"x")) == (record.value % 2 == 1)
    assert all(values == list(range(1, len(values) + 1)) for values in totals.values())
    assert {word: len(values) for word, values in totals.items()} == {
        word: 3 * rounds * count for word, count in {"to": 2, "be": 2, "or": 1, "not": 1}.items()
    }
    assert all(each == list(range(1, len(each) + 1)) for each in seqs.values())
    names = [record.headers[-1][0] for record in found if record.partition == found[0].partition]
    assert names[0] == "grete.t"
    assert names[-1] == "grete"


def test_recovered_outputs_are_compared_whatever_their_headers_are() -> None:
    """A task may die after it has gone over, and its successor begins from the commit before that."""
    place, visible = TopicPartition("out", 0), Recovered()
    visible.add(4, 0, b"k", b"v", cell_of([("a", b"b")], b"j/s-0", 4, 77, one=True))

    def differs(t: int, theirs: bytes, *, one: bool) -> bool:
        cell = cell_of([("a", theirs)], b"j/s-0", 4, t, one=one)
        return visible.differs(4, ExternalRecord(place, b"k", b"v", 0, cell))

    assert [differs(77, b"b", one=one) for one in (True, False)] == [False, False]
    assert [differs(78, b"b", one=False), differs(77, b"c", one=False)] == [True, True]
    assert content_of(cell_of((), b"j/s-0", 4, 77, one=True)) == content_of(cell_of((), b"j/s-0", 4, 77, one=False))
