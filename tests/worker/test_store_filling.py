"""A task of a packed process whose snapshot does not come: the other tasks go on, and it reads its changelog."""

import os
import runpy
import shutil
import threading
from pathlib import Path

import pytest

from grete.core.supervision.assignment import HostedShare
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.protocol.report import TaskState
from grete.settings import Settings
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.local_reader import LocalReader
from grete.state.read.snapshot_upload import SnapshotUpload
from grete.stores.snapshot_folder import SnapshotFolder
from grete.worker.supervisor.local_job import LocalJob
from tests.worker.test_supervisor import poll_until, running

JOB = """
from grete import Input, Job, Record, Store, Task, Topic, int64, utf8

class Count(Task):
    lines = Input(Topic("lines", key=utf8, value=utf8))
    counts = Store("counts", key=utf8, value=int64)
    def process(self, record: Record[str, str]) -> None:
        self.counts.put(record.value, self.counts.get(record.value, 0) + 1)

job = Job("filled", stages=[Count], partitions=2)
"""
BUDGET = 32 << 20


def say(local: LocalJob, *words: str) -> None:
    """Append words to each partition, and wait until the second one has committed all of its own."""
    at = [TopicPartition("lines", partition) for partition in range(2)]
    rows = [ExternalRecord(each, word.encode(), word.encode(), 1) for each in at for word in words]
    local.metadata.produce_with_meta(rows, {})
    poll_until(local, lambda: local.committed()[at[1]] == local.log.bounds(at[1])[1])


@pytest.mark.parametrize("ends", ["the folder answers", "a person stops the job"])
def test_other_tasks_go_on_while_a_snapshot_does_not_come(tmp_path: Path, ends: str) -> None:
    """A pipe is in the place of a file, so its reader waits: only the task that needs it does, and a stop ends it."""
    path = tmp_path / "job.py"
    path.write_text(JOB)
    job, directory = load_job(str(path)), JobDirectory(tmp_path / "job")
    url = f"file://{tmp_path}/folder"
    settings = Settings(checkpoint_interval_ms=50, snapshot_url=url)
    with LocalJob(job, str(path), directory, settings, share=HostedShare(1)) as local:
        say(local, "a", "b")
        poll_until(local, lambda: local.committed()[TopicPartition("lines", 0)] == 2)
        local.stop()
        graph, wiring = job.tasks()[0][0], all_wirings(job)[0]
        upload = SnapshotUpload(local.log, job.name, SnapshotFolder(url, job.name), tmp_path / "copies", BUDGET)
        assert upload.take(graph, wiring, directory.state("count-0")) is not None
    shutil.rmtree(directory.state("count-0"))
    file = max((tmp_path / "folder").rglob("files/*"), key=lambda each: each.stat().st_size)
    file.unlink()
    os.mkfifo(file)
    with LocalJob(job, str(path), directory, settings, share=HostedShare(1)) as local:
        say(local, "b", "c")
        tasks = local.supervisor.workers[0].reports.tasks
        assert tasks["count-1"].status is TaskState.RUNNING
        assert tasks["count-0"].status is not TaskState.RUNNING
        if ends == "the folder answers":
            threading.Thread(target=file.write_bytes, args=(b"",), daemon=True).start()
            poll_until(local, lambda: running(local))
            poll_until(local, lambda: local.committed()[TopicPartition("lines", 0)] == 4)
        local.stop()
    assert local.supervisor.core.failures == []
    if ends == "the folder answers":
        code = runpy.run_path(str(path))
        with LocalReader(directory.state("count-0").parent, code["job"]) as reader:
            assert dict(reader.all(code["Count"].counts)) == {"a": 1, "b": 2, "c": 1}
