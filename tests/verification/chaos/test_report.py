"""The results of a chaos run in docs/results."""

from collections import Counter

from benchmarks.results import Kept, Run, Table
from tests.verification.chaos.kills import with_run
from tests.verification.chaos.tally import Tally


def run(title: str = "") -> Run:
    tables = [Table(title, [], [])] if title else []
    return Run("python -m …", "abc1234", "2026-11-22", "2 cores", {}, tables)


def test_a_run_takes_the_place_of_those_on_the_same_log() -> None:
    """The figures of the other log stay; the text beside says what was hit."""
    embedded, kafka = run("Kills of real workers on the embedded log"), run("Kills of real workers on Kafka")
    tally = Tally(kills=40, rollbacks=9, rolled_back=700, phases=Counter({"committing": 30, "running": 10}))
    kept = with_run(Kept([embedded, kafka]), run(), "embedded", 5, tally, 1_234, 61.7)
    assert kept.runs[1] is kafka
    [table] = kept.runs[0].tables
    assert dict(zip(table.columns, table.rows[0], strict=True)) == {
        "seed": 5,
        "kills": 40,
        "rolled something back": 9,
        "records rolled back": 700,
        "entries checked": 1_234,
        "seconds": 62,
    }
    assert "committing 75 %, running 25 %" in kept.runs[0].notes[0]


def test_on_kafka_it_takes_the_place_of_those_on_kafka() -> None:
    """An address is Kafka; a file without such a run gets one more."""
    kept = with_run(Kept([run("Kills of real workers on the embedded log")]), run(), "kafka://b:9092", 5, Tally(), 0, 1)
    assert [each.tables[0].title[-5:] for each in kept.runs] == ["d log", "Kafka"]
