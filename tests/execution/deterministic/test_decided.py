"""An input that changes under a deterministic source: what a predecessor took must be read again, all of it (D2)."""

from collections.abc import Callable

import pytest

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
from grete.core.actions import ProcessExternal
from grete.errors import Halted
from grete.execution.deterministic.decided import DecidedRows, digest_of
from grete.logs.memory import MemoryLog, MemoryPartition
from grete.protocol.changelog import TakenRows
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.testing import Kit

LINES = Topic("lines", key=utf8, value=utf8)
OUT = Topic("out", key=utf8, value=utf8)
PLACE = TopicPartition("lines", 0)


class Count(Task):
    """Counts what it takes: the output says what the state must hold."""

    lines = Input(LINES)
    counts = Store("counts", key=utf8, value=int64)
    out = Output(OUT)

    def process(self, record: Record[str, str]) -> None:
        count = self.counts.get("all", 0) + 1
        self.counts.put("all", count)
        self.out.send(record.value, str(count))


def _compacted(lines: MemoryPartition) -> None:
    del lines.rows[1:4]


def _emptied(lines: MemoryPartition) -> None:
    del lines.rows[:6]


def _expired(lines: MemoryPartition) -> None:
    del lines.rows[:2]
    lines.start = 2


def _rewritten(lines: MemoryPartition) -> None:
    lines.rows[2] = lines.rows[2]._replace(value=b"other")


def _headers_changed(lines: MemoryPartition) -> None:
    lines.rows[2] = lines.rows[2]._replace(headers=b"\0\0\0\0")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (_compacted, r"3 of them \(offsets 1, 2, 3\) are gone: it was compacted"),
        (_emptied, r"6 of them \(offsets 0, 1, 2, 3, 4 and 1 more\) are gone: it was compacted"),
        (_expired, r"lines\[0\] no longer has offset 0, at which .* reads on: the log starts at 2"),
        (_rewritten, "it holds others there: it was rewritten"),
        (_headers_changed, "it holds others there: it was rewritten"),
    ],
)
def test_an_input_that_changed_under_a_decision_halts_its_source(
    change: Callable[[MemoryPartition], None], found: str
) -> None:
    """The source dies before its commit, the input changes, and the successor does not take later rows instead."""
    kit = Kit(Job("j", [Count], mode="deterministic"), settings=Settings(checkpoint_interval_ms=60_000))
    kit.advance(20)
    for number in range(6):
        kit.feed(LINES, None, f"line {number}")
    kit.advance(20)
    assert len(kit.outputs(OUT)) == 6
    kit.crash("count")
    for number in range(6, 10):
        kit.feed(LINES, None, f"line {number}")
    change(kit._data.partition(PLACE))
    with pytest.raises(Halted, match=found) as halted:
        kit.advance(20)
    assert change is _expired or "6 records of lines[0], from offset 0 to 5, were taken" in str(halted.value)


@pytest.fixture
def kit() -> Kit:
    """A log with an input of four records and a hole, as transactions leave them."""
    kit = Kit(Job("j", [Count], mode="deterministic"))
    for number in range(5):
        kit.feed(LINES, None, f"line {number}")
    del kit._data.partition(PLACE).rows[2]
    return kit


def test_counterexamples_that_were_there_are_no_change(kit: Kit) -> None:
    """Offsets need not be contiguous: markers of transactions take some. What comes is what was taken."""
    rows = list(kit._data.partition(PLACE).rows)
    decided = DecidedRows("count-0", MemoryLog(kit._data), Settings(batch_bytes_max=1))
    for taken in (rows[:3], rows[3:]):
        proof = TakenRows(taken[-1][0], digest_of(taken))
        action = ProcessExternal(PLACE, taken[0][0], len(taken), 1, replay=True, rows=proof)
        assert decided.read(action) == taken


def test_a_decision_of_the_first_format_is_replayed_as_before(kit: Kit) -> None:
    """It says where it begins and how many it took, and no more."""
    rows = list(kit._data.partition(PLACE).rows)
    decided = DecidedRows("count-0", MemoryLog(kit._data), Settings(batch_bytes_max=1))
    assert decided.read(ProcessExternal(PLACE, 0, 3, 1, replay=True)) == rows[:3]
    with pytest.raises(Halted, match="does not hold them"):
        decided.read(ProcessExternal(PLACE, 4, 2, 1, replay=True))
