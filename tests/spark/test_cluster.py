"""Attempts on a real Spark cluster: a slow one gets a twin, one dies with its executor; state counts once (2.5)."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from framework.logs.embedded import EmbeddedLog
from framework.runtime.history import commits
from framework.runtime.inspect import all_wirings
from framework.runtime.place import Place, create_topics
from tests.runtime.pair_job import job
from tests.runtime.pair_runs import run
from tests.spark.cluster_backfills import JOBS, LIVE, PAST, backfills
from tests.spark.cluster_scenes import COUNTED, REFERENCE, WORDS, attempts_at
from tests.spark.test_backfill import plain

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]  # five processes of Java


def play(command: list[str]) -> None:
    """Run the scenes; however that ends, the cluster's processes end with it."""
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            _, errors = process.communicate()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, errors[-10_000:]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory in which all scenes have been played: one cluster for all of them."""
    directory = tmp_path_factory.mktemp("cluster")
    for name in ("slow", "killed"):
        log = EmbeddedLog(Place(directory / name).directory / "log.db")
        create_topics(job, log)
        log.close()
    play([sys.executable, "-m", "tests.spark.cluster_scenes", str(directory)])
    return directory


def is_gone(killed: Path) -> bool:
    """Tell whether the process that a killer has noted down is no more."""
    return not Path(f"/proc/{killed.read_text()}").exists()


def test_attempts_on_a_cluster_count_once(played: Path) -> None:
    """Speculation starts a second attempt beside the first, a SIGKILL takes an executor from the middle of a write.

    One attempt is named, and workers go on from it.
    """
    for name in ("slow", "killed"):
        log = EmbeddedLog(played / name / "log.db")
        attempts = attempts_at(log, COUNTED)
        (commit,) = (at.commit for at in commits(log, all_wirings(job)[3]))
        log.close()
        assert len(attempts) >= 2
        assert commit.attempt in attempts
        assert run(REFERENCE, played / name, ("a", WORDS[0])) == dict.fromkeys(WORDS, 3) | {WORDS[0]: 4}
    assert is_gone(played / "killed" / "killed")


@pytest.mark.parametrize("name", JOBS)
def test_a_backfill_survives_its_executors(played: Path, name: str) -> None:
    """One stage loses an executor to a SIGKILL, an attempt of the other one gets a twin: each record counts once.

    Workers go on from there, with what the attempts that count have left as files, then from the changelogs alone.
    """
    scene = backfills(played)[name]
    own = Path(scene.reference).parent
    assert is_gone(own / "killed")
    exits = [line for line in (played / "cluster.log").read_text().splitlines() if "exitStatus 137" in line]
    assert sum("Unknown" not in line for line in exits) == 1 + len(JOBS)  # the write's, and one of each backfill
    slow, twin = ((own / which).read_text().split() for which in ("slow", "twin"))
    assert slow[0] == twin[0]  # a stage of Spark
    assert slow[1] != twin[1]  # two attempts in it, at once
    scene.feed(LIVE)
    scene.run()
    assert (scene.prebuilt(), scene.taken()) == (0, 4)
    assert scene.state() == plain(PAST, LIVE)
    assert scene.sent("told") == sum(text != "x" for _, text, _ in LIVE)
    shutil.rmtree(scene.place.state_directory)
    scene.run()
    assert scene.state() == plain(PAST, LIVE)
    scene.log.close()
