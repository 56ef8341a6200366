"""The peers of the benchmarks: their records are checked as ours are, and their rows stand beside ours."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.kafka_tables import plan as counting
from benchmarks.latency import __main__ as experiment
from benchmarks.latency.__main__ import measure_all, plan
from benchmarks.latency.pictures import draw
from benchmarks.latency.reader import Seen
from benchmarks.latency.report import figures
from benchmarks.latency.results import Cell, Found
from benchmarks.peers.tools import HERE, PEERS, TOOLS, asked_peers

TEXTS = ["One two one", "two three"]
RESULT = {
    "p50": 12.34,
    "p75": 20.0,
    "p95": 30.0,
    "p99": 1_234.5,
    "max": 2_000.0,
    "cpu_s": 9.0,
    "documents": 900,
    "idle_percent": None,
}


def cell(mode: str, checkpoint_interval_ms: int = 1_000) -> Cell:
    """Return a cell as a run keeps it."""
    return Cell("steady", "kafka", mode, checkpoint_interval_ms, 2, 8.0)


def test_a_peers_index_is_accepted() -> None:
    """A change as JSON, however its writer spaces it."""
    seen = Seen(TEXTS, 2)
    for word, text in (
        (b"one", b"[0,[0,2],1]"),
        (b"two", b"[0, [1], 1]"),
        (b"two", b"[1,[0],2]"),
        (b"three", b"[1,[1],1]"),
    ):
        seen.take(0, word, text, 1.0)
    assert (seen.left, seen.latest) == (0, [1.0, 1.0])


@pytest.mark.parametrize(
    ("word", "text", "why"),
    [
        (b"one", b"[0,[0],1]", "was due"),  # a position is missing
        (b"one", b"[0,[0,2],2]", "was due"),  # a version too high
        (b"One", b"[0,[0,2],1]", "a record too many"),  # a word as it was written
        (b"three", b"[0,[1],1]", "a record too many"),  # of another document
    ],
)
def test_a_peers_wrong_record_makes_its_run_invalid(word: bytes, text: bytes, why: str) -> None:
    """A peer's output is compared with the index that the reader computes."""
    with pytest.raises(SystemExit, match=why):
        Seen(TEXTS, 2).take(0, word, text, 1.0)


def test_the_tables_of_a_kept_run_have_the_peers_and_their_settings(tmp_path: Path) -> None:
    """A row for each, in the order of the run; below them what was chosen, and what is not there."""
    rows = [(cell(mode, 500), RESULT) for mode in ("deterministic", "Flink, at-least-once", "Flink, exactly-once")]
    Found("here", rows, ["quixstreams: no\nnetwork"]).keep(tmp_path / "kept.json")
    found = Found.kept(tmp_path / "kept.json")
    assert found.results == rows
    text = figures(found.results, found.left_out)
    assert "| Flink, at-least-once | 500 | 12.3 | 20.0 | 30.0 | 1,234.5 | 2,000.0 | 0.02 | 10.0 |  |" in text
    assert text.index("| deterministic ") < text.index("| Flink, at-least-once ") < text.index("| Flink, exactly-once ")
    assert f"- Flink {TOOLS['Flink'].version}: {TOOLS['Flink'].settings}" in text
    assert "Kafka Streams" not in text
    assert "- quixstreams: no network" in text


def test_a_run_from_before_the_peers_is_read(tmp_path: Path) -> None:
    """An older file says nothing of what was left out."""
    (tmp_path / "kept.json").write_text(json.dumps({"where": "there", "results": [(cell("deterministic"), RESULT)]}))
    text = figures(Found.kept(tmp_path / "kept.json").results)
    assert "deterministic" in text
    assert "peers" not in text


def test_the_peers_have_a_picture_of_their_own(tmp_path: Path) -> None:
    """Both pictures by interval: the first as without peers."""
    modes = ("deterministic", *PEERS)
    draw([(cell(mode, interval), RESULT) for mode in modes for interval in (100, 1_000)], tmp_path)
    ours, peers = ((tmp_path / f"latency-{name}.svg").read_text() for name in ("intervals", "peers"))
    assert "deterministic, p99" in ours
    assert "Flink" not in ours
    assert all(name in peers for name in ("Grete, deterministic", *PEERS))


def test_peers_run_on_kafka_only_and_beside_our_modes() -> None:
    """Each interval has all its rows together; the embedded log has no peers."""
    cells = list(plan(["kafka", "embedded"], 8.0, ["deterministic"], ["Flink"], quick=False))
    assert not [each for each in cells if each.log == "embedded" and each.mode in PEERS]
    steady = [
        (each.checkpoint_interval_ms, each.mode) for each in cells if (each.kind, each.log) == ("steady", "kafka")
    ]
    flink = ["Flink, at-least-once", "Flink, exactly-once"]
    assert steady == [(ms, mode) for ms in (100, 500, 1_000, 5_000) for mode in ("deterministic", *flink)]


def test_a_peer_is_measured_with_the_intervals_that_it_takes() -> None:
    """Real-time Mode takes 5 s or more, and has no sink that is exactly once."""
    cells = list(plan(["kafka"], 8.0, ["deterministic"], ["Spark"], quick=False))
    spark = [(each.checkpoint_interval_ms, each.mode) for each in cells if each.mode in PEERS]
    assert spark == [(5_000, "Spark, at-least-once")]


def test_spark_is_the_one_of_the_extra() -> None:
    """Its program runs in this environment."""
    pins = (HERE.parents[1] / "requirements/dev.txt").read_text()
    assert f"pyspark=={TOOLS['Spark'].version} " in pins


def test_a_peer_that_fails_is_left_out_and_we_are_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An invalid run of a peer is said and the others go on; an invalid run of ours ends all."""

    def measured(_module: str, _log: str, *arguments: str) -> dict[str, Any]:
        if "mode=deterministic" in arguments:
            return RESULT
        raise SystemExit("a record too many")

    monkeypatch.setattr(experiment, "measure_any", measured)
    monkeypatch.setattr(experiment, "OUT", tmp_path)
    found = Found("here", [], [])
    measure_all([cell("Flink, exactly-once"), cell("deterministic")], {"kafka": "kafka://nowhere:9092"}, found)
    assert [each.mode for each, _ in found.results] == ["deterministic"]
    assert found.left_out == ["kafka 2×2, Flink, exactly-once, 1,000 ms: a record too many"]
    assert Found.kept(tmp_path / "latency.json") == found
    with pytest.raises(SystemExit, match="a record too many"):
        measure_all([cell("exactly-once")], {"kafka": "kafka://nowhere:9092"}, found)


@pytest.mark.parametrize(
    ("tool", "line"),
    [
        ("Flink", "<version>{}</version>"),
        ("Kafka Streams", "<version>{}</version>"),
        ("quixstreams", "quixstreams=={}\n"),
    ],
)
def test_the_checkpoint_in_the_tables_is_the_one_that_is_fetched(tool: str, line: str) -> None:
    """Said once for people, once for Maven or pip."""
    directory = HERE / tool.lower().replace(" ", "_")
    pinned = directory / ("requirements.txt" if tool == "quixstreams" else "pom.xml")
    assert line.format(TOOLS[tool].version) in pinned.read_text()


def test_an_unknown_peer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """PEERS: 1 for all, or names."""
    monkeypatch.setenv("PEERS", "1")
    assert asked_peers() == list(TOOLS)
    monkeypatch.setenv("PEERS", "Flink, quixstreams")
    assert asked_peers() == ["Flink", "quixstreams"]
    monkeypatch.setenv("PEERS", "Flimk")
    with pytest.raises(SystemExit, match="no peer Flimk; 1 for all, or: Flink, quixstreams, Kafka Streams"):
        asked_peers()


def test_counting_has_the_peers_that_are_asked_for() -> None:
    """Behind our own forms, each guarantee a row; none if none is asked for."""
    alone = counting("localhost:9092", 400_000)
    beside = counting("localhost:9092", 400_000, ["Flink"])
    assert list(beside) == [*alone, "Flink, at-least-once", "Flink, exactly-once"]
    assert "form=Flink, exactly-once" in beside["Flink, exactly-once"]
