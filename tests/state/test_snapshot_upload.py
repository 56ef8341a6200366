"""A job of most that tasks keep, moved to a new machine by snapshots: the same state there, byte for byte (0090)."""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rocksdict import Options, Rdict

from grete.api.tasks.mode import Mode
from grete.core.supervision.assignment import HostedShare
from grete.job.directory import JobDirectory
from grete.protocol.changelog_position import decode_changelog_position
from grete.state.read.checkpoints.commits import CommittedAt, all_wirings
from grete.state.read.checkpoints.snapshots import commits, snapshot_at
from grete.state.read.snapshot_upload import CHANGELOG, LOCAL, SnapshotUpload, TakenSnapshot
from grete.state.write.rebuild import replay
from grete.stores.snapshot_folder import SnapshotFolder
from grete.worker.supervisor.local_job import LocalJob
from tests.support.draining import drain
from tests.support.parity_job import SETTINGS, ParityJob
from tests.support.parity_records import fed

pytestmark = pytest.mark.timeout(600)  # 16 tasks, started three times

STAGES = "Sums, Windows, Delay, Later, Joins, Forget"
HISTORY, MORE = fed(0, 150), fed(160, 240)
Families = dict[str, dict[bytes, bytes]]  # column family → entries


class Moved(ParityJob):
    """A job of most rows of ``parity`` in one worker process."""

    def __init__(self, directory: Path, mode: Mode) -> None:
        stages = STAGES if mode == "aligned" else f"{STAGES}, Remind, Reminded"
        (directory / "job.py").write_text(
            f"from grete import Job\nfrom tests.support.parity import {stages}\n\n"
            f"job = Job('moved-{mode}', [{stages}], partitions=2, mode={mode!r})\n"
        )
        super().__init__(directory)
        self.url = f"file://{directory}/folder"
        self.settings = SETTINGS
        self.make()

    def running(self) -> LocalJob:
        """Return the job, to be entered."""
        return LocalJob(self.job, self.reference, self.directory, self.settings, share=HostedShare(1))

    def take(self, url: str, stores: JobDirectory) -> list[TakenSnapshot]:
        """Take a snapshot of each task, with the stores of a machine."""
        folder = SnapshotFolder(url, self.job.name)
        upload = SnapshotUpload(self.log, self.job.name, folder, self.directory.snapshots(), 32 << 20)
        found = [
            upload.take(graph, wiring, stores.state(wiring.name))
            for (graph, _), wiring in zip(self.job.tasks(), all_wirings(self.job), strict=True)
        ]
        assert all(each is not None for each in found)
        return [each for each in found if each is not None]

    def events(self) -> list[str]:
        """Return the lines that the worker of the last run has logged."""
        text = self.directory.worker_log(0).read_text()
        return [json.loads(line)["event"] for line in text.splitlines() if line.startswith("{")]

    def restored(self, into: Path) -> None:
        """Restore each task from its changelog, at the commit that the store of this machine is the state of."""
        found = []
        for wiring in all_wirings(self.job):
            raw = families(self.directory.state(wiring.name))["default"][b"pointer"]
            offset = decode_changelog_position(raw).offset
            (at,) = [each for each in commits(self.log, wiring) if each.offset == offset]
            found.append(snapshot_at(self.log, wiring, CommittedAt(*at)))
        for _ in replay(self.log, self.job, found, into, self.settings):
            pass


def families(directory: Path) -> Families:
    """Return all that a closed RocksDB holds."""
    names = Rdict.list_cf(str(directory), Options(raw_mode=True))
    options = {name: Options(raw_mode=True) for name in names if name != "default"}
    with closing(Rdict(str(directory), Options(raw_mode=True), options)) as database:
        opened: dict[str, Any] = {
            name: database.get_column_family(name) if name in options else database for name in names
        }
        return {name: dict(each.items()) for name, each in opened.items()}


@pytest.fixture(params=["aligned", "deterministic"])
def moved(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Moved]:
    """Yield a job with a history to process."""
    found = Moved(tmp_path, request.param)
    found.feed(HISTORY)
    yield found
    found.log.close()


def test_a_new_machine_has_what_a_restored_one_has(moved: Moved, tmp_path: Path) -> None:
    """Snapshots of a running job, more input, an empty disk: every column family equals that of a restore.

    State, timers, windows, joins, expiring stores, repeats, outbox and what a task keeps of itself; whether the
    snapshot came from a store that a worker had open, or from the changelog.
    """
    folders = {LOCAL: moved.directory, CHANGELOG: JobDirectory(tmp_path / "elsewhere")}
    count = len(all_wirings(moved.job))
    with moved.running() as local:
        drain(local)
        for source, stores in folders.items():
            assert [each.source for each in moved.take(f"{moved.url}/{source}", stores)] == [source] * count
        moved.feed(MORE)
        drain(local)
        local.stop()
    for source in folders:
        shutil.rmtree(moved.directory.state_directory)
        moved.directory.worker_log(0).unlink()
        moved.settings = msgspec.structs.replace(moved.settings, snapshot_url=f"{moved.url}/{source}")
        with moved.running() as local:
            drain(local)
            local.stop()
        events = moved.events()
        assert events.count("state taken from a snapshot") == count >= 12
        assert "snapshot cannot be used" not in events
        moved.restored(tmp_path / "restored")
        filled = 0
        for wiring in all_wirings(moved.job):
            found = families(moved.directory.state(wiring.name))
            assert found == families(tmp_path / "restored" / wiring.name), wiring.name
            filled += sum(bool(entries) for entries in found.values())
        assert filled > 3 * count
