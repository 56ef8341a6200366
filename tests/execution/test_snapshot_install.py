"""Real workers on an empty disk take snapshots, are killed meanwhile, and never believe one that is wrong (0090)."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from grete.errors import ConfigError
from grete.job.directory import JobDirectory
from grete.logs.embedded import EmbeddedLog
from grete.state.read.checkpoints.commits import all_wirings, last_commit
from grete.state.read.local_reader import LocalReader
from grete.state.read.snapshot_upload import CHANGELOG as FROM_CHANGELOG
from grete.state.read.snapshot_upload import LOCAL, SnapshotUpload, TakenSnapshot
from grete.stores.snapshot_folder import SnapshotFolder, SnapshotManifest
from tasks.word_count import CountWords
from tasks.word_count import job as word_count
from tests.execution.killed_snapshots import FETCHING
from tests.worker.workers import CHANGELOG, TASK, WorkerUnderTest, say, until_committed, word_log

WORDS = 3_000
TAKEN, REFUSED = "state taken from a snapshot", "snapshot cannot be used"
BUDGET = 32 << 20


class Machines:
    """A job of one task, its log, and machines that come with an empty disk."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.url = directory / "job", f"file://{directory}/folder"
        self.folder = SnapshotFolder(self.url, word_count.name)
        self.log: EmbeddedLog = word_log(self.directory)
        self._said = 0

    def work(self, *sentences: str, url: str | None = None) -> list[str]:
        """Let a worker commit these sentences; return what it logged."""
        say(self.log, *sentences)
        self._said += len(sentences)
        url = self.url if url is None else url
        with WorkerUnderTest(self.directory, f"--set=snapshot_url={url}") as worker:
            worker.running()
            until_committed(self.log, self._said)
            worker.signal(signal.SIGTERM)
            assert worker.ends() == 0
            lines = [line for line in worker.log_path.read_text().splitlines() if line[:1] == "{"]
        return [f"{each['event']}: {each.get('error', '')}" for each in map(json.loads, lines)]

    def take(self) -> TakenSnapshot:
        """Take a snapshot."""
        upload = SnapshotUpload(self.log, word_count.name, self.folder, self.directory / "snapshots", BUDGET)
        ((graph, _),), (wiring,) = word_count.tasks(), all_wirings(word_count)
        taken = upload.take(graph, wiring, self.state)
        assert taken is not None
        return taken

    @property
    def state(self) -> Path:
        """The directory of the store on this machine."""
        return JobDirectory(self.directory).state(TASK)

    def move(self) -> None:
        """Go on with an empty disk."""
        shutil.rmtree(self.state.parent)

    def counts(self) -> dict[str, int]:
        """Return the state on this machine."""
        with LocalReader(self.state.parent, word_count) as reader:
            return dict(reader.all(CountWords.counts))

    def newest(self) -> tuple[str, SnapshotManifest]:
        """Return name and manifest of the newest snapshot."""
        name = self.folder.manifests(TASK)[0]
        return name, self.folder.manifest(TASK, name)

    def change(self, **changes: object) -> None:
        """Write the newest snapshot again with another manifest, whose digest is right."""
        name, manifest = self.newest()
        self.folder._delete(TASK, name)
        own = self.directory / "files"
        own.mkdir()
        self.folder.fetch(TASK, manifest, own, lambda _done: None)
        self.folder.put(TASK, own, msgspec.structs.replace(manifest, **changes))
        shutil.rmtree(own)


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    """Return a job that has some state, and a snapshot of it."""
    found = Machines(tmp_path)
    found.work(" ".join(f"word-{number:05d}" for number in range(WORDS)), url="")
    found.take()
    return found


def expected(**more: int) -> dict[str, int]:
    """Return the state: each word once, and these."""
    return {f"word-{number:05d}": 1 for number in range(WORDS)} | {
        name.replace("_", "-"): count for name, count in more.items()
    }


def has(events: list[str], event: str) -> bool:
    """Whether a line was logged."""
    return any(each.startswith(event) for each in events)


def test_an_empty_disk_takes_the_snapshot_and_reads_the_rest(machines: Machines) -> None:
    """Sentences behind the snapshot come from the changelog; a store that is there is left alone."""
    machines.work("word-00001 again", url="")
    machines.move()
    events = machines.work("word-00001 again")
    assert has(events, TAKEN)
    assert machines.counts() == expected(word_00001=3, again=2)
    machines.take()
    events = machines.work("again")
    assert not has(events, TAKEN)
    assert machines.counts() == expected(word_00001=3, again=3)


def test_a_snapshot_restores_nothing_from_the_changelog(machines: Machines) -> None:
    """The task has read only the commits behind it: the counter of restores says so."""
    machines.move()
    with WorkerUnderTest(machines.directory, f"--set=snapshot_url={machines.url}") as worker:
        counters = worker.running()["counters"]
    assert (counters.get("restores", 0), counters.get("restored records", 0)) == (0, 0)


STEPS = [(step, 0) for step in FETCHING] + [
    ("before a file is fetched", 2),
    ("within a fetched file", 3),
    ("before the store is opened", 1),
    ("between two renames", 0),
]


@pytest.mark.parametrize(("step", "number"), STEPS)
def test_a_kill_meanwhile_costs_nothing(machines: Machines, step: str, number: int) -> None:
    """A kill before, within and between files, and at each step of the change to them: the next start does it again.

    Only after the last step, the store is there already.
    """
    machines.work("more", url="")
    machines.move()
    command = [sys.executable, "-m", "tests.execution.killed_snapshots", step, str(number), "worker"]
    options = ["tasks.word_count", "--partition=0", f"--directory={machines.directory}"]
    killed = subprocess.run([*command, *options, f"--set=snapshot_url={machines.url}"], check=False)
    assert killed.returncode == -signal.SIGKILL
    events = machines.work("more")
    assert has(events, TAKEN) == ((step, number) != ("before the store is opened", 1))
    assert machines.counts() == expected(more=2)
    assert not machines.state.with_name(f"{TASK}.fetched").exists()


def _damaged_file(machines: Machines) -> None:
    file = max(machines.newest()[1].files, key=lambda each: each.size_bytes)
    path = Path(machines.folder._path(TASK, f"files/{file.digest}"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _missing_file(machines: Machines) -> None:
    file = max(machines.newest()[1].files, key=lambda each: each.size_bytes)
    Path(machines.folder._path(TASK, f"files/{file.digest}")).unlink()


def _damaged_manifest(machines: Machines) -> None:
    path = Path(machines.folder._path(TASK, machines.newest()[0]))
    path.write_bytes(path.read_bytes()[:-2])


def _files_of_less(machines: Machines) -> None:
    """Leave out an SST file: all that is named is whole, and RocksDB finds that one is missing."""
    name, manifest = machines.newest()
    machines.folder._delete(TASK, name)
    (own := machines.directory / "files").mkdir()
    machines.folder.fetch(TASK, manifest, own, lambda _done: None)
    max(own.glob("*.sst"), key=lambda path: path.stat().st_size).unlink()
    machines.folder.put(TASK, own, manifest)


WRONG: dict[str, tuple[Callable[[Machines], None], str]] = {
    "damaged file": (_damaged_file, "is damaged: it has"),
    "missing file": (_missing_file, "it is not there"),
    "damaged manifest": (_damaged_manifest, "is damaged: its digest"),
    "fewer files": (_files_of_less, "wipe it and restore"),
    "another job": (lambda m: m.change(job="another"), "of task count-words-0 of job 'another'"),
    "another task": (lambda m: m.change(task="count-words-1"), "of task count-words-1"),
    "another graph": (lambda m: m.change(fingerprint=1), "other stages"),
    "another store": (lambda m: m.change(stores={10: "amounts"}), "has store 10 as 'amounts'"),
    "another commit": (lambda m: m.change(nonce="11" * 16), "has no commit of checkpoint"),
    "beyond the end": (lambda m: m.change(offset=1_000_000), "has no commit of checkpoint"),
    "another position": (
        lambda m: m.change(offset=last_offset(m), checkpoint_id=last_id(m), generation=2, nonce=last_nonce(m)),
        "has the changelog position",
    ),
}


def last_offset(machines: Machines) -> int:
    """Return the offset of the last commit."""
    found = last_commit(machines.log, CHANGELOG)
    assert found is not None
    return found.offset


def last_id(machines: Machines) -> int:
    """Return its checkpoint."""
    found = last_commit(machines.log, CHANGELOG)
    assert found is not None
    return found.commit.checkpoint_id


def last_nonce(machines: Machines) -> str:
    """Return its nonce."""
    found = last_commit(machines.log, CHANGELOG)
    assert found is not None
    return found.commit.nonce.hex()


@pytest.mark.parametrize("wrong", WRONG)
def test_a_snapshot_that_does_not_fit_costs_time_and_no_truth(machines: Machines, wrong: str) -> None:
    """The worker says why it is not used, and reads the changelog."""
    machines.work("more", url="")
    apply, said = WRONG[wrong]
    apply(machines)
    machines.move()
    events = machines.work("more")
    assert any(each.startswith(REFUSED) and said in each for each in events), events
    assert not has(events, TAKEN)
    assert machines.counts() == expected(more=2)


def test_the_one_before_is_taken_if_the_newest_is_damaged(machines: Machines) -> None:
    """Nobody must delete it first."""
    machines.work("more", url="")
    assert machines.take().uploaded is not None
    _damaged_manifest(machines)
    machines.move()
    events = machines.work("more")
    assert has(events, REFUSED)
    assert has(events, TAKEN)
    assert machines.counts() == expected(more=2)


def test_a_folder_that_is_away_or_empty_costs_a_line(machines: Machines) -> None:
    """There is no such folder, a url of no known kind, a folder below a file, or nothing of this job in it."""
    file = machines.directory / "a-file"
    file.touch()
    for url, said in [
        (f"{machines.directory}/nothing", "no snapshot of the task"),
        ("nowhere://there", REFUSED),
        (str(file), REFUSED),
    ]:
        machines.move()
        assert has(machines.work("more", url=url), said)
    assert machines.counts() == expected(more=3)


def test_a_snapshot_that_the_changelog_has_left_behind_is_passed_over(machines: Machines) -> None:
    """Its commit is trimmed: the worker says so, and what to change; the state comes from the changelog."""
    offset = machines.newest()[1].offset
    with WorkerUnderTest(
        machines.directory, "--set=changelog_retention_ms=0", "--set=checkpoint_interval_ms=20"
    ) as worker:
        worker.running()
        worker.until(lambda _status: machines.log.bounds(CHANGELOG)[0] > offset or _busy(machines))
    start, _ = machines.log.bounds(CHANGELOG)
    assert start > offset
    machines.move()
    events = machines.work("more")
    assert any(each.startswith(REFUSED) and f"begins at {start} now" in each for each in events), events
    assert machines.counts()["more"] == 1


def _busy(machines: Machines) -> bool:
    """Change a few keys, so that a rewrite of all is paid for."""
    say(machines.log, " ".join(f"word-{number:05d}" for number in range(WORDS)))
    machines._said += 1
    return False


def test_a_store_that_its_worker_has_left_is_brought_up_to_date(machines: Machines) -> None:
    """A snapshot is at the newest commit, whatever the store here is at: with none of it, the changelog has all."""
    stale = machines.directory / "stale"
    shutil.copytree(machines.state, stale)
    machines.work("more", url="")
    for source in LOCAL, FROM_CHANGELOG:
        shutil.rmtree(machines.url.removeprefix("file://"))
        shutil.rmtree(machines.state)
        if source == LOCAL:
            shutil.copytree(stale, machines.state)
        taken = machines.take()
        assert (taken.source, taken.at.offset, machines.newest()[1].offset) == (source, *[last_offset(machines)] * 2)
        machines.move()
        with WorkerUnderTest(machines.directory, f"--set=snapshot_url={machines.url}") as worker:
            assert worker.running()["counters"].get("restored records", 0) == 0
        assert machines.counts() == expected(more=1)


def test_a_store_of_another_log_is_left_out_of_a_snapshot(machines: Machines, tmp_path: Path) -> None:
    """Its commit is not in this changelog, so the changelog is read."""
    (tmp_path / "two").mkdir()
    other = Machines(tmp_path / "two")
    other.work("another state", url="")
    shutil.rmtree(machines.state)
    shutil.copytree(other.state, machines.state)
    shutil.rmtree(machines.url.removeprefix("file://"))
    assert machines.take().source == FROM_CHANGELOG
    machines.move()
    assert has(machines.work("more"), TAKEN)
    assert machines.counts() == expected(more=1)


def test_a_folder_of_another_log_is_refused(machines: Machines, tmp_path: Path) -> None:
    """The two would delete each other's snapshots."""
    (tmp_path / "two").mkdir()
    other = Machines(tmp_path / "two")
    other.work("another state", url="")
    other.folder = machines.folder
    with pytest.raises(ConfigError, match=r"is a snapshot of another log: .*folder of its own"):
        other.take()


def test_a_job_that_begins_asks_for_no_snapshot(tmp_path: Path) -> None:
    """Its changelog is empty, so there is nothing to restore, and the folder may be away."""
    machines = Machines(tmp_path)
    events = machines.work("a word", url="nowhere://there")
    assert not has(events, REFUSED)
    assert machines.counts() == {"a": 1, "word": 1}
    with closing(machines.log):
        pass
