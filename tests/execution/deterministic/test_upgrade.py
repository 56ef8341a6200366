"""A log that the release before digests has written opens, and what it left to be made again is made again (D2, D5).

``before_digests.json`` is such a log, of the job below, written by commit cdbe5c0: its tasks were killed with decisions
and outputs behind their last commits.
"""

import json
from pathlib import Path

import pytest

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
from grete.errors import Halted
from grete.ports import LogRow
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.testing import Kit
from grete.testing.job_host import START_MS
from tests.execution.deterministic.test_remade import OUTPUT_DELIVERIES, OutputDelivery

LETTERS = Topic("letters", key=utf8, value=utf8)
WORDS = Topic("words", key=utf8, value=utf8)
OUT = Topic("out", key=utf8, value=utf8)
ECHO = Topic("echo", key=utf8, value=utf8)
BEFORE = json.loads(Path(__file__).with_name("before_digests.json").read_text())


class Pass(Task):
    letters = Input(LETTERS)
    words = Output(WORDS)
    echo = Output(ECHO)

    def process(self, record: Record[str, str]) -> None:
        self.words.send("all", record.value)
        self.echo.send("all", record.value)


class Total(Task):
    words = Input(WORDS)
    totals = Store("totals", key=utf8, value=int64)
    out = Output(OUT)

    def process(self, record: Record[str, str]) -> None:
        total = self.totals.get("all", 0) + 1
        self.totals.put("all", total)
        self.out.send("all", f"{total} {record.value}")


def opened(output_delivery: OutputDelivery) -> Kit:
    """Return the job over that log, on another host."""
    settings = Settings(checkpoint_interval_ms=200, changelog_retention_ms=0, output_delivery=output_delivery)
    kit = Kit(Job("old", [Pass, Total], mode="deterministic"), settings=settings)
    before = BEFORE[{"transactional": "transaction", "sequenced": "read-back"}[output_delivery]]  # as the file says
    for name, rows in before["rows"].items():
        topic, _, number = name.rstrip("]").rpartition("[")
        into = kit._data.partition(TopicPartition(topic, int(number)))
        into.start = before["starts"][name]
        for offset, append_time, timestamp, *cells in rows:
            key, value, headers = (None if cell is None else bytes.fromhex(cell) for cell in cells)
            into.rows.append(LogRow(offset, append_time, timestamp, key, value, headers))
            into.append_time_ms = append_time
    assert before["now_ms"] >= START_MS
    kit.now_ms = before["now_ms"]
    return kit


def first_bytes(kit: Kit, stage: str) -> set[int]:
    """Return the first byte of each message in a changelog."""
    return {(row.value or b"\0")[0] for row in kit._data.partition(TopicPartition(f"old.{stage}.changelog", 0)).rows}


@pytest.mark.parametrize("output_delivery", OUTPUT_DELIVERIES)
def test_a_log_of_the_release_before_goes_on(output_delivery: OutputDelivery) -> None:
    """Old decisions are replayed, old releases dropped; after that new ones are written and compared."""
    kit = opened(output_delivery)
    found = first_bytes(kit, "pass")
    assert 0x1B in found
    assert not {0x2B, 0x2D} & found
    texts = [f"{kind}{number}" for kind in "ab" for number in range(3)]
    kit.run()
    for number in range(3):
        kit.feed(LETTERS, "k", f"c{number}")
        kit.advance(6)
    kit.crash_all()
    kit.run()
    texts += [f"c{number}" for number in range(3)]
    assert [record.value for record in kit.outputs(ECHO)] == texts
    assert [record.value for record in kit.outputs(OUT)] == [f"{n} {text}" for n, text in enumerate(texts, 1)]
    assert kit.state(Total.totals) == {"all": 9}


@pytest.mark.parametrize("output_delivery", OUTPUT_DELIVERIES)
def test_its_input_is_compared_from_the_upgrade_on(output_delivery: OutputDelivery) -> None:
    """The first decision of this release proves its rows, whatever is before it."""
    kit = opened(output_delivery)
    kit.run()
    kit.feed(LETTERS, "k", "new")
    kit.advance(6)
    kit.crash("pass")
    assert 0x2B in first_bytes(kit, "pass")
    lines = kit._data.partition(TopicPartition("letters", 0)).rows
    lines[-1] = lines[-1]._replace(value=b"other")
    with pytest.raises(Halted, match="it was rewritten"):
        kit.run()
