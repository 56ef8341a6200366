"""Attempts on a real Spark cluster: a slow one gets a twin, one dies with its executor; state counts once (2.5)."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from grete.execution.build import store_names
from grete.job.directory import JobDirectory
from grete.job.topics import create_topics
from grete.logs.embedded import EmbeddedLog
from grete.protocol.changelog import ChangelogType
from grete.protocol.changelog_position import ChangelogPosition
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.checkpoints.snapshots import commits, contents, live, segments, settled_fold, snapshots
from grete.stores.rocksdb.sst_snapshot import SstBuilder, publish
from tests.spark.backfill.scene import plain
from tests.spark.cluster_backfills import HISTORY, LIVE, filled
from tests.spark.cluster_moves import LATE
from tests.spark.cluster_moves import headers_in as headers_of
from tests.spark.cluster_scenes import COUNTED, REFERENCE, WORDS, attempts_at, headers_in
from tests.spark.format import history
from tests.spark.format.queries import code, made_of
from tests.spark.troubles import is_gone
from tests.state.pair_bulk_writes import run
from tests.state.pair_job import job

# Five processes of Java: 2 minutes on two quiet cores, and ten were not enough beside all other tests.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]


def play(directory: Path, scenes: Sequence[str]) -> None:
    """Run the scenes; however that ends, the cluster's processes end with it, and a failure says how far they came."""
    for name in {"slow", "killed", "late"} & {*scenes}:
        log = EmbeddedLog(JobDirectory(directory / name).directory / "log.db")
        create_topics(job, log)
        log.close()
    command, errors = (
        [sys.executable, "-m", "tests.spark.cluster_scenes", str(directory), *scenes],
        directory / "errors",
    )
    with errors.open("wb") as file:
        root = Path(__file__).parents[2]
        process = subprocess.Popen(command, cwd=root, stderr=file, start_new_session=True)
    try:
        assert process.wait() == 0
    except BaseException as error:  # pytest's, too, when the time is over
        error.add_note(errors.read_text(errors="replace")[-10_000:])
        raise
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


SCENES = "late", "aligned"  # the writes of attempts, and one backfill by them
MORE = "slow", "killed", "moved", "followed", "records", "deterministic"  # some move and read what the first one wrote


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory in which the first scenes have been played: one cluster for all of them."""
    directory = tmp_path_factory.mktemp("cluster")
    play(directory, SCENES)
    return directory


@pytest.fixture(scope="module")
def played_more(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory in which the other scenes have been played, on another cluster."""
    directory = tmp_path_factory.mktemp("more")
    history.run(directory / "followed", 6, frozenset({3}))
    log = EmbeddedLog(directory / "followed" / "log.db")
    every = history.positions(log)
    log.close()
    (directory / "followed" / "middle").write_text(str(every[len(every) // 2].checkpoint_id))
    (directory / "records").mkdir()
    code(directory / "records" / "told.py")
    play(directory, MORE)
    return directory


@pytest.mark.prove
def test_attempts_on_a_cluster_count_once(played_more: Path) -> None:
    """Speculation starts a second attempt beside the first, a SIGKILL takes an executor from the middle of a write.

    One attempt is named, and workers go on from it.
    """
    for name in ("slow", "killed"):
        log = EmbeddedLog(played_more / name / "log.db")
        attempts = attempts_at(log, COUNTED)
        (commit,) = (at.commit for at in commits(log, all_wirings(job)[3]))
        log.close()
        assert len(attempts) >= 2
        assert commit.attempt in attempts
        assert run(REFERENCE, played_more / name, ("a", WORDS[0])) == dict.fromkeys(WORDS, 3) | {WORDS[0]: 4}
    assert is_gone(played_more / "killed" / "killed")


@pytest.mark.prove
def test_a_query_on_a_cluster_has_each_change_once(played_more: Path) -> None:
    """A SIGKILL takes an executor from the middle of a batch: what the files hold is the state at each checkpoint."""
    directory = played_more / "followed"
    assert is_gone(directory / "killed")
    rows = [SimpleNamespace(**row) for row in json.loads((directory / "rows.json").read_text())]
    assert len({(row.partition, row.key, row.checkpoint_id) for row in rows}) == len(rows)
    log = EmbeddedLog(directory / "log.db")
    every = history.positions(log)[1:]
    assert [made_of(rows, position.checkpoint_id) for position in every] == [
        history.counts_at(log, position) for position in every
    ]
    log.close()


@pytest.mark.prove
def test_a_query_on_a_cluster_has_each_record_once(played_more: Path) -> None:
    """It reads a stream and a topic: a SIGKILL takes an executor, workers are killed, the query is started again."""
    directory = played_more / "records"
    assert is_gone(directory / "killed")
    rows = json.loads((directory / "rows.json").read_text())
    observed, words = ([row for row in rows if row["of"] == topic] for topic in ("observed", "words"))
    assert len({(row["partition"], row["place"]) for row in observed}) == len(observed) == 40
    assert Counter(row["key"] for row in words) == Counter(word for row in observed for word in row["value"].split())
    channels: dict[tuple[str, int], list[int]] = {}
    for row in words:
        channels.setdefault((row["producer"], row["partition"]), []).append(row["place"])
    assert all(sorted(seqs) == list(range(1, len(seqs) + 1)) for seqs in channels.values())


def leave_files(directory: Path) -> None:
    """Leave the state of a task as files for its worker, as a backfill does that has committed it."""
    log = EmbeddedLog(directory / "log.db")
    snapshot = snapshots(log, job)[3]
    stores = store_names(job.stages[1])
    builder = SstBuilder(directory / "work")
    for store, entries in sorted(contents(segments(log, snapshot), frozenset(stores)).items()):
        keys, values, _ = live(dict(sorted(entries.items())))
        builder.add([store] * len(keys), keys, values)
    commit = snapshot.commit
    changelog_position = ChangelogPosition(snapshot.offset, commit.generation, commit.checkpoint_id, commit.nonce)
    publish(
        directory / "work", JobDirectory(directory).prebuilt(snapshot.task), changelog_position, stores, builder.close()
    )
    log.close()


def test_an_attempt_that_writes_on_behind_the_commit_stops_no_reader(played: Path) -> None:
    """Spark has given it up and its twin is committed: a worker takes the files of that commit, a restore begins there.

    Both begin to read at the commit, behind which is the rest of the lost attempt, without what is before it (C2).
    """
    directory, wiring = played / "late", all_wirings(job)[3]
    log = EmbeddedLog(directory / "log.db")
    headers = headers_in(log, COUNTED)
    (at,) = (offset for offset, header in enumerate(headers) if header.type is ChangelogType.COMMIT)
    (commit,) = (each.commit for each in commits(log, wiring))
    lost = int((directory / "slow-attempt").read_text())
    assert commit.attempt != lost
    seqs = [[header.seq for header in part if header.attempt == lost] for part in (headers[:at], headers[at:])]
    assert seqs[0]
    assert seqs[1]
    assert seqs[1][0] == seqs[0][-1] + 1
    leave_files(directory)
    expected = dict.fromkeys(WORDS, 3)
    for _ in range(10):
        some = WORDS[::3]  # they pay for a part of a round
        for word in some:
            expected[word] += 1
        assert run(REFERENCE, directory, *(("a", word) for word in some), checkpoint_interval_ms=1000) == expected
        assert not JobDirectory(directory).prebuilt(wiring.name).exists()
        if settled_fold(log, wiring).start == at:
            break
    assert settled_fold(log, wiring).start == at  # a whole round is behind it: what is before it may go
    log.trim(COUNTED, at)
    shutil.rmtree(JobDirectory(directory).state_directory)
    expected[WORDS[0]] += 1
    assert run(REFERENCE, directory, ("a", WORDS[0])) == expected
    assert log.bounds(COUNTED)[0] == at
    log.close()


@pytest.mark.prove
def test_a_rescale_on_a_cluster_counts_once(played_more: Path) -> None:
    """From 2 partitions to 4, by executors of which one is killed, and one goes on writing behind the commit.

    Workers go on with what the attempts that count have left as files, then from the changelogs alone.
    """
    directory = played_more / "moved"
    assert is_gone(directory / "killed")
    headers, lost = headers_of(directory, LATE), int((directory / "late").read_text())
    first, at = (offset for offset, header in enumerate(headers) if header.type is ChangelogType.COMMIT)
    assert {header.attempt for header in headers[first:at]} > {0, lost}
    assert any(header.attempt == lost for header in headers[at:])
    four = played_more / "four.py"
    four.write_text(Path("tests/state/pair_job.py").read_text().replace("partitions=2", "partitions=4"))
    expected = dict.fromkeys(WORDS, 3)
    for word in WORDS[:2]:
        expected[word] += 1
        assert run(str(four), directory, ("a", word)) == expected
        shutil.rmtree(JobDirectory(directory).state_directory)
    logs = (JobDirectory(directory).worker_log(number).read_text() for number in range(4))
    assert sum(text.count("state taken from files of a backfill") for text in logs) == 8


@pytest.mark.parametrize(
    ("name", "where", "kills"),
    [
        ("aligned", "played", {"aligned"}),
        pytest.param("deterministic", "played_more", {*MORE} - {"slow"}, marks=pytest.mark.prove),
    ],
)
def test_a_backfill_survives_its_executors(
    name: str, where: str, kills: set[str], request: pytest.FixtureRequest
) -> None:
    """One stage loses an executor to a SIGKILL, an attempt of the other one gets a twin: each record counts once.

    Workers go on from there, with what the attempts that count have left as files, then from the changelogs alone.
    """
    directory: Path = request.getfixturevalue(where)
    scene = filled(name, directory)
    own = Path(scene.reference).parent
    assert is_gone(own / "killed")
    exits = [line for line in (directory / "cluster.log").read_text().splitlines() if "exitStatus 137" in line]
    assert sum("Unknown" not in line for line in exits) == len(kills)  # of the scenes of this cluster
    slow, twin = ((own / which).read_text().split() for which in ("slow", "twin"))
    assert slow[0] == twin[0]  # a stage of Spark
    assert slow[1] != twin[1]  # two attempts in it, at once
    scene.feed(LIVE)
    scene.run()
    assert (scene.prebuilt(), scene.taken()) == (0, 4)
    assert scene.state() == plain(HISTORY, LIVE)
    assert scene.sent("told") == sum(text != "x" for _, text, _ in LIVE)
    shutil.rmtree(scene.job_directory.state_directory)
    scene.run()
    assert scene.state() == plain(HISTORY, LIVE)
    scene.log.close()
