"""A job's state from its history, then live: nothing missed, nothing twice; audited (2.5)."""

import json
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from grete.cli import command_line
from grete.cli.commands.audit import tell_audit
from grete.cli.output.progress import Screen
from grete.errors import ConfigError, Fenced, Halted, TaskError
from grete.protocol.ids import TopicPartition
from grete.spark.backfill.history import read_history
from grete.state.read.checkpoints.commits import all_wirings, last_commit
from grete.state.read.checkpoints.snapshots import settled_fold
from grete.testing.broker import Broker
from grete.worker.supervisor.local_job import LocalJob
from tests.cli.test_reading import unchanged
from tests.cli.test_state_commands import grete
from tests.spark.backfill.scene import (
    SETTINGS,
    Scene,
    made,
    parquet,
    plain,
)
from tests.spark.conftest import FinishedJob
from tests.support.draining import drain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]  # the first to come starts Spark


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.log.close()


def poll_for_ever(local: LocalJob) -> None:
    while True:
        local.poll(100)


def test_a_job_goes_live_from_files_and_is_audited(spark: "SparkSession", scene: Scene, tmp_path: Path) -> None:
    """Two stages from Parquet, real workers over what follows: the plain result of both; an audit sees any other."""
    history, live = made(600, 1), made(200, 2)
    for number in range(2):
        parquet(tmp_path / "history" / f"{number}.parquet", history[number * 300 : (number + 1) * 300])
    done = scene.backfill(spark, str(tmp_path / "history"), outputs=True)
    assert scene.sent("letters") == sum(text == "x" for _, text, _ in history)
    assert done.cover.resume == {TopicPartition("events", number): 0 for number in range(2)}
    assert sum(report.letters for report in done.reports) == sum(text == "x" for _, text, _ in history)
    assert (scene.prebuilt(), scene.taken()) == (4, 0)
    scene.feed(live)
    scene.run()
    assert scene.state() == plain(history, live)
    assert (scene.prebuilt(), scene.taken()) == (0, 4)
    assert scene.sent("told") == sum(text != "x" for _, text, _ in [*history, *live])
    assert not list((scene.job_directory.directory / "spark").glob("*"))
    audited = scene.audit(spark, str(tmp_path / "history"))
    assert (audited.wrong, audited.differences) == (0, [])
    pq.write_table(pq.read_table(tmp_path / "history" / "1.parquet").slice(1), tmp_path / "history" / "1.parquet")
    audited = scene.audit(spark, str(tmp_path / "history"))
    changed = {(each.store, each.key.decode()) for each in audited.differences}
    assert changed >= {("seen", history[300][0])}
    assert audited.wrong == len(audited.differences) <= 2
    assert not tell_audit(Screen(Console()), scene.job, audited, aligned=True)


def test_the_index_of_the_demonstration_is_audited(
    spark: "SparkSession", finished: FinishedJob, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Documents that came, changed and went, over two stages of four partitions: recomputed, the index is the same."""
    command = ["grete", "audit", "tasks.inverted_index", "--directory", str(finished.directory)]
    monkeypatch.setattr(sys, "argv", command)
    with unchanged(finished.directory), pytest.raises(SystemExit) as ended:
        command_line()
    printed, errors = capsys.readouterr()
    assert not ended.value.code, errors
    assert "of 2 stages: nothing differs" in printed
    assert spark.version


@pytest.mark.kafka
def test_the_topics_own_history_on_kafka(spark: "SparkSession", kafka_broker: Broker, tmp_path: Path) -> None:
    """State is rebuilt up to where the job is, an archive first, then the log; a live worker is fenced and says so.

    The job goes on from there: no output of the history comes again, none of the rest is missing.
    """
    scene = Scene(tmp_path, f"-{tmp_path.name[-20:]}-{random.randrange(1 << 30)}", f"kafka://{kafka_broker.bootstrap}")
    history, live = made(300, 3), made(100, 4)
    scene.feed(history)
    archived = archive_of(scene, tmp_path, 100)
    with LocalJob(scene.job, scene.reference, scene.job_directory, SETTINGS) as local:
        drain(local)
        done = scene.backfill(spark, archived)
        with pytest.raises(Fenced, match="another process has taken its partition"):
            poll_for_ever(local)
    assert sum(done.cover.resume.values()) == 300
    assert sum(begin for begin, _ in done.cover.tails.values()) > 0
    assert (scene.prebuilt(), scene.taken()) == (4, 0)
    scene.feed(live)
    scene.run()
    assert scene.state() == plain(history, live)
    assert (scene.prebuilt(), scene.taken()) == (0, 4)
    assert scene.sent("told") == sum(text != "x" for _, text, _ in [*history, *live])
    assert scene.audit(spark, "kafka").wrong == 0
    scene.log.close()


def archive_of(scene: Scene, tmp_path: Path, offset: int) -> str:
    """Write what each partition holds before ``offset`` as an archive, one row of it twice."""
    rows = [
        (number, row[0], row[3], row[4], row[2])
        for number in range(2)
        for row in scene.log.read(TopicPartition(scene.topic, number), 0, 1 << 24)
        if row[0] < offset
    ]
    partition, offsets, keys, values, times = (list(column) for column in zip(*rows, rows[5], strict=True))
    table = {"partition": partition, "offset": offsets, "key": keys, "value": values, "timestamp": times}
    pq.write_table(pa.table(table), tmp_path / "archive.parquet")
    return str(tmp_path / "archive.parquet")


def test_a_backfill_whose_driver_is_killed_is_run_again(spark: "SparkSession", tmp_path: Path) -> None:
    """Killed while a task runs: nothing counts, no worker sees anything of it; the second run doubles nothing."""
    flag = tmp_path / "kill"
    kill = (
        f"        import os, pathlib\n        flag = pathlib.Path({str(flag)!r})\n"
        "        if flag.exists():\n            pid = int(flag.read_text())\n            flag.unlink()\n"
        "            os.kill(pid, 9)\n"
    )
    scene = Scene(tmp_path, "-killed", more=kill)
    history = made(300, 5)
    path = parquet(tmp_path / "history" / "0.parquet", history)
    command = [sys.executable, "-m", "grete.cli", "backfill", scene.reference, f"--from={path}"]
    driver = subprocess.Popen([*command, f"--directory={scene.job_directory.directory}", "--spark=local[1]"])
    flag.write_text(str(driver.pid))
    assert driver.wait(300) == -signal.SIGKILL
    wirings = all_wirings(scene.job)
    assert [last_commit(scene.log, wiring.changelog) for wiring in wirings] == [None] * 4
    assert max(settled_fold(scene.log, wiring).top for wiring in wirings) == 1  # claimed
    scene.backfill(spark, path)
    scene.run()
    assert scene.state() == plain(history)
    scene.log.close()


def test_a_backfill_whose_driver_is_killed_before_the_outcome_is_settled(spark: "SparkSession", tmp_path: Path) -> None:
    """A real ``grete backfill`` dies with all commits written.

    ``--resume`` lets it count, ``--abort`` rolls it back.

    Workers refuse to guess until then; afterwards they go on from the one state or the other.
    """
    scene = Scene(tmp_path, "-settled")
    history, live = made(300, 7), made(100, 8)
    path = parquet(tmp_path / "history" / "0.parquet", history)
    scene.feed(live)
    scene.log.close()
    deadly = (
        "import tests.state.killed_bulk_writes as k, grete.logs.address as o;"
        "from grete.cli import command_line;"
        "k.Deadly.left = 9; o.EmbeddedLog = k.Deadly; command_line()"  # 4 claims, 4 commits, the outcome
    )
    command = [sys.executable, "-c", deadly, "backfill", scene.reference, f"--from={path}", "--spark=local[1]"]
    command += [f"--directory={scene.job_directory.directory}", "--max-refused=100", "--accept=overlap"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    shutil.copytree(scene.job_directory.directory, tmp_path / "other")
    for directory, choice in ((scene.job_directory.directory, "--resume"), (tmp_path / "other", "--abort")):
        scene.move_to(directory)
        with pytest.raises(Halted, match="has not written its outcome"):
            scene.run()
        settled = ["backfill", scene.reference, f"--directory={directory}", choice]
        assert ("counts" if choice == "--resume" else "does not count") in grete(*settled)
        assert "there is no backfill to settle" in grete(*settled)
        if choice == "--abort":
            assert [last_commit(scene.log, wiring.changelog) for wiring in all_wirings(scene.job)] == [None] * 4
            scene.backfill(spark, path)
        scene.run()
        assert scene.state() == plain(history, live)
        assert scene.sent("told") == sum(text != "x" for _, text, _ in live)
        scene.log.close()


def test_history_that_does_not_fit_is_refused_before_anything_is_claimed(
    spark: "SparkSession", scene: Scene, tmp_path: Path
) -> None:
    """No such path, no such column, another partition count, an offset that the log has not: errors, and no claim."""
    cases = [
        (str(tmp_path / "nowhere"), "nowhere"),
        (parquet(tmp_path / "p" / "a.parquet", made(3, 1), partition=[0, 1, 2], offset=[0, 0, 0]), "of partition 2"),
        (parquet(tmp_path / "q" / "a.parquet", made(1, 1), offset=[0]), "give both, or none"),
    ]
    pq.write_table(pa.table({"key": ["a"], "value": ["b"]}), tmp_path / "untimed.parquet")
    pq.write_table(pa.table({"key": ["a"], "value": ["b"], "timestamp": ["c"]}), tmp_path / "worded.parquet")
    cases += [(str(tmp_path / "untimed.parquet"), "no column timestamp"), (str(tmp_path / "worded.parquet"), "string")]
    for path, message in cases:
        with pytest.raises(ConfigError, match=message):
            scene.backfill(spark, path)
    for until in ("0=1,1=1", "0=0,1=99"):
        with pytest.raises(ConfigError, match=r"from offset (1|99), but the log has 0 to 0"):
            scene.backfill(spark, "kafka", until=until)
    assert all(scene.log.bounds(wiring.changelog) == (0, 0) for wiring in all_wirings(scene.job))


def test_lines_that_are_not_json_and_a_task_that_fails(spark: "SparkSession", tmp_path: Path) -> None:
    """A malformed line is a dead letter with its text, or ends the backfill, as declared; then nothing counts.

    What user code raises comes out as it is.
    """
    lines = [
        json.dumps({"key": "key-1", "value": "7", "timestamp": 5}),
        "{broken",
        json.dumps({"key": "a", "value": "1"}),
    ]
    (tmp_path / "history.jsonl").write_text("\n".join(lines))
    rows = read_history(spark, str(tmp_path / "history.jsonl"), "events", 2).rows.select("value", "refused").collect()
    assert {(bytes(row[0]), row[1]) for row in rows} == {
        (b"7", None),
        (b"{broken", "the line is not JSON"),
        (b"1", "the row has no timestamp"),
    }
    lenient = Scene(tmp_path, "-lenient")
    done = lenient.backfill(spark, str(tmp_path / "history.jsonl"), outputs=True)
    assert sum(report.refused for report in done.reports) == lenient.sent("letters") == 2
    lenient.run()
    assert lenient.state() == ({"key-1": 1}, {"1": 7})
    lenient.log.close()
    dropping = Scene(tmp_path, "-dropping", changes=[("errors=DeadLetter(letters)", 'errors="drop"')])
    done = dropping.backfill(spark, str(tmp_path / "history.jsonl"), outputs=True)
    assert [sum(getattr(report, each) for report in done.reports) for each in ("refused", "failed")] == [2, 2]
    assert dropping.state() == ({"key-1": 1}, {"1": 7})
    dropping.log.close()
    strict = Scene(tmp_path, "-strict", changes=[(", errors=DeadLetter(letters)", "")])
    with pytest.raises(
        TaskError, match=r"stage parse, partition \d: topic events.*: the (line is not JSON|row has no)"
    ):
        strict.backfill(spark, str(tmp_path / "history.jsonl"))
    assert all(settled_fold(strict.log, wiring).last is None for wiring in all_wirings(strict.job))
    strict.log.close()
    failing = Scene(tmp_path, "-failing", more='        assert record.value != "7", "seven"\n')
    Path(failing.reference).write_text(Path(failing.reference).read_text().replace(", errors=DeadLetter(letters)", ""))
    with pytest.raises(TaskError, match=r"offset \d, record \d: AssertionError: seven") as seven:
        failing.backfill(spark, parquet(tmp_path / "p" / "0.parquet", [("key-1", "7", 1)]))
    assert (seven.value.stage, seven.value.topic, seven.value.offset) == ("parse", "events-failing", 0)
    assert all(settled_fold(failing.log, wiring).last is None for wiring in all_wirings(failing.job))
    failing.log.close()


def test_a_stage_that_is_sent_nothing_writes_its_state(spark: "SparkSession", tmp_path: Path) -> None:
    """Spark leaves out work on what is empty, if it may (adaptive execution): then tasks would have no commit."""
    quiet = Scene(tmp_path, "-quiet", more="        return\n")
    before = spark.conf.get("spark.sql.adaptive.enabled")
    done = quiet.backfill(spark, parquet(tmp_path / "p" / "0.parquet", [("key-1", "7", 1)]))
    assert sorted((report.task, report.records) for report in done.reports) == [(0, 0), (0, 1), (1, 0), (1, 0)]
    assert all(settled_fold(quiet.log, wiring).last is not None for wiring in all_wirings(quiet.job))
    assert spark.conf.get("spark.sql.adaptive.enabled") == before
    quiet.log.close()
