"""The four solutions for the shared channel: what the workers count, what is computed, and the page."""

import pytest

from benchmarks.results import RESULTS, Run, Table, read
from benchmarks.shared_channel import (
    AT_LEAST_ONCE,
    COLUMNS,
    LATENESSES,
    SEED,
    VARIANTS,
    Found,
    computed,
    measure,
    others,
    rows_of,
)
from benchmarks.shared_channel_worker import CountingLog
from grete.logs.memory import MemoryLog, MemoryLogData
from grete.protocol.envelope import Header, MessageType, encode_header
from grete.protocol.frames import encode_columns
from grete.protocol.ids import TopicPartition

STREAM = TopicPartition("job.split.words.count", 0)


def counted(early: int, late: int, spread_s: list[float]) -> Found:
    """Return a run of one worker: 100 records, latencies of 1 to 100 ms."""
    seen = {"early records": early}
    worker = {"bytes": 150, "bytes_again": 50, "records": 100, "late": late, "cpu_s": 0.1, "spread_s": spread_s}
    return Found([float(ms) for ms in range(1, 101)], [worker | {"seen": seen}])


def test_rows_have_shares_and_what_the_document_expects() -> None:
    """Bytes read again are a share of the stream, CPU time is for 1,000 records."""
    [row] = rows_of({"2: skip early records, seek back": counted(40, 0, [])})
    assert row == ["2: skip early records, seek back", "51 / 100", "40%", 0, "50%", "0%", 1000, SEED["2"]]


def test_solutions_one_and_four_are_computed_from_the_run_with_a_late_source() -> None:
    """1: the spread of markers and a hop; 4: the share of late records, with their CPU time."""
    kept = counted(40, 6, [0.02, 0.04])
    first, fourth = computed({AT_LEAST_ONCE: counted(0, 0, []), "3: keep early records in memory": kept}, 200)
    assert first[1] == "sources wait for 47 ms in a checkpoint (p99 57), 24% of their time"
    assert fourth[1] == "6% of the records are processed twice: 60 ms of CPU a 1,000 records more"


def test_a_log_counts_what_is_read_again_and_what_comes_late() -> None:
    """A frame of checkpoint 1 behind one of checkpoint 2 is late; a second reading is bytes, not records."""
    data = MemoryLogData(lambda: 0)
    log = CountingLog(MemoryLog(data), ".words.")
    log.create_topic(STREAM.topic, 1)
    for producer, checkpoint_id in ((0, 1), (0, 2), (1, 1)):
        header = encode_header(Header(MessageType.FRAME, producer, 1, checkpoint_id, 1))
        frame = header + encode_columns([b"a", b"b"], [b"1", b"2"], [0, 0])
        data.append(STREAM, None, frame, 0, None)
    data.append(STREAM, None, encode_header(Header(MessageType.MARKER, 0, 1, 1, 3)), 0, None)
    first = log.read(STREAM, 0, 1 << 20)
    assert (log.records, log.late, log.bytes_again, len(log.markers)) == (6, 2, 0, 1)
    log.read(STREAM, 1, 1 << 20)
    assert log.records == 6
    assert log.bytes_again == sum(len(row.value or b"") for row in first[1:])


@pytest.mark.chaos
@pytest.mark.timeout(600)
@pytest.mark.parametrize("label", ["3: keep early records on disk", "2: skip early records, seek back"])
def test_early_records_are_kept_on_disk_or_read_again(label: str) -> None:
    """Real workers and a late source; ``measure`` raises if an output is missing or there twice."""
    found = measure("embedded", LATENESSES[0], label, 3.0)
    on_disk, again = found.seen("early records on disk"), found.total("bytes_again")
    if label.startswith("3"):
        assert on_disk > 0
    else:
        assert (on_disk, found.seen("early records")) == (0, 0)
        assert min(again, found.seen("seeks back")) > 0


def test_one_late_source_measured_alone_takes_the_place_of_its_tables() -> None:
    """Those of the other one stay with their run; a run that has none left goes."""

    def run(*titles: str) -> Run:
        return Run("python -m …", "abc1234", "2026-11-23", "2 cores", {}, [Table(title, [], []) for title in titles])

    late = "Measured on Kafka, one source very late: 9 ms", "Computed for Kafka, one source very late"
    kept = others([run("Measured on Kafka, one source a little late", *late), run(*late)], "very late")
    assert [[table.title for table in each.tables] for each in kept] == [
        ["Measured on Kafka, one source a little late"]
    ]


def test_the_page_has_all_four_beside_the_estimates() -> None:
    """Every variant on each log, with its estimate; 3 reads nothing again, 2 keeps nothing on disk."""
    found = [table for run in read("shared-channel").runs for table in run.tables]
    assert len(found) == 2 * 2 * len(LATENESSES)  # two logs
    for measured, modelled in zip(found[::2], found[1::2], strict=True):
        assert measured.columns == COLUMNS
        rows = {str(row[0]): dict(zip(COLUMNS, row, strict=True)) for row in measured.rows}
        assert set(rows) == set(VARIANTS)
        assert all(row["read again"] == "0%" for label, row in rows.items() if not label.startswith("2"))
        assert rows["2: skip early records, seek back"]["read again"] != "0%"
        assert rows["3: keep early records on disk"]["on disk"] != "0%"
        assert [row[-1] for row in modelled.rows] == [SEED["1"], SEED["4"]]
    assert "Samza design document" in (RESULTS / "shared-channel.md").read_text("utf-8")
