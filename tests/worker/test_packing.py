"""Worker processes that host several partitions: who hosts what, and what a person is told of them."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from grete.core.supervision.assignment import HostedShare
from grete.errors import ExitCode, Fenced, TransientError
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.protocol.report import TaskState, WorkerReport, decode_worker_report
from grete.settings import Settings
from grete.worker.pipes.status_pipe import StatusLines, StatusPipe, report_in
from grete.worker.supervisor.local_job import LocalJob
from tests.monitor.test_server import get, samples, url_in
from tests.support.reports import task_report
from tests.support.waiting import until
from tests.worker.test_supervisor import PAIR, poll_until, running
from tests.worker.workers import LIMIT_S, WorkerUnderTest

COUNT = """
from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8

words = Topic("words", key=utf8, value=utf8)

class Split(Task):
    lines = Input(Topic("lines", key=utf8, value=utf8))
    out = Output(words)
    def process(self, record: Record[str, str]) -> None:
        for word in record.value.split():
            self.out.send(word, word)

class Count(Task):
    words = Input(words)
    counts = Store("counts", key=utf8, value=int64)
    def process(self, record: Record[str, str]) -> None:
        self.counts.put(record.key, self.counts.get(record.key, 0) + 1)

job = Job("packed", stages=[Split, Count], partitions=3)
"""


def test_a_status_that_is_longer_than_the_pipe_arrives_whole() -> None:
    """It goes out in parts while the supervisor reads; what comes in between is left out, not mixed with it."""
    (reader, writer), lines, ended = os.pipe(), StatusLines(), list[bool]()
    os.set_blocking(reader, False)

    def said() -> list[WorkerReport]:
        """Return the reports that have come whole."""
        found = [report_in(line, decode_worker_report, "worker 0") for line in lines.read(reader) or ()]
        return [report for report in found if report is not None]

    pipe = StatusPipe(writer)
    pipe.gone = lambda: ended.append(True)
    long = [task_report(f"task-{number}", checkpoint_id=number, last_failure="x" * 1_000) for number in range(300)]
    another = task_report("another-0", checkpoint_id=1)
    pipe.report(WorkerReport(tasks=tuple(long)))
    pipe.report(WorkerReport(tasks=(another,)))
    pipe.show_life()
    came = list[WorkerReport]()
    for _ in range(20):
        came += said()
        pipe.go_on()
    assert came == [WorkerReport(tasks=tuple(long))]
    pipe.report(WorkerReport(tasks=(another,)))
    assert said() == [WorkerReport(tasks=(another,))]
    os.write(writer, b'{"version":2,"tasks":[]}\n')
    with pytest.raises(TransientError, match=r"worker 0 reports what this process .* another Grete was installed"):
        said()
    os.close(reader)
    pipe.show_life()
    assert not ended  # the loop is to notice
    pipe.report(WorkerReport(tasks=()))
    assert ended
    os.close(writer)


def test_a_task_that_is_fenced_ends_alone_and_stays_away(tmp_path: Path) -> None:
    """Another process has it: the others go on, and a new process does not take it back. Fenced of all, it ends."""
    path = tmp_path / "pair.py"
    path.write_text(PAIR)
    with LocalJob(
        load_job(str(path)), str(path), JobDirectory(tmp_path / "job"), Settings(), share=HostedShare(1)
    ) as local:
        (worker,) = local.supervisor.workers.values()
        poll_until(local, lambda: running(local))
        assert worker.reports.tasks.keys() == {"pass-0", "pass-1"}
        other = f"--state-directory={tmp_path / 'other'}"
        with WorkerUnderTest(tmp_path / "job", other, reference=str(path), partition=1, task="pass-1") as thief:
            poll_until(local, lambda: worker.reports.tasks["pass-1"].status is TaskState.FENCED)
            assert worker.reports.tasks["pass-0"].status is TaskState.RUNNING
            (news,) = local.supervisor.news
            assert "pass-1 was fenced: another process has taken it; the other tasks go on" in news
            with pytest.raises(Fenced, match="pass-1 was fenced"):
                local.require_all()
            taken = thief.running()["generation"]
            local.supervisor.kill(0)
            poll_until(
                local, lambda: bool(worker.reports.tasks) and worker.reports.tasks["pass-0"].status is TaskState.RUNNING
            )
            assert worker.reports.tasks["pass-1"].status is TaskState.FENCED
            assert thief.until(lambda status: status["status"] == "running")["generation"] == taken
            with WorkerUnderTest(tmp_path / "job", other, reference=str(path), partition=0, task="pass-0") as second:
                with pytest.raises(Fenced, match="worker 0 was fenced: another process has taken a partition of it"):
                    poll_until(local, lambda: False)
                second.running()
        assert (worker.exit_code, worker.starts) == (ExitCode.FENCED, 2)


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the log lines of a worker."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]


@pytest.mark.timeout(600)
def test_up_runs_all_partitions_in_one_process_and_brings_all_of_them_back(tmp_path: Path) -> None:
    """The page, the metrics and the log say which worker hosts what; a kill ends all tasks, and all come back."""
    (tmp_path / "job.py").write_text(COUNT)
    shown = tmp_path / "up.txt"
    command = [sys.executable, "-m", "grete.cli", "up", "job.py", "--processes=1", "--http=0", "--directory=here"]
    with (
        shown.open("wb") as out,
        subprocess.Popen(command, cwd=tmp_path, stdout=out, stderr=out) as up,
    ):
        try:
            url = until(lambda: url_in(shown))
            assert "packed: 1 worker for 3 partitions in here" in shown.read_text()
            until(lambda: get(url, "/readyz")[0] == 200)
            (worker,) = json.loads(get(url, "/status.json")[1])["workers"]
            assert (worker["number"], worker["partitions"]) == (0, [0, 1, 2])
            names = {f"{stage}-{partition}" for stage in ("split", "count") for partition in range(3)}
            assert worker["tasks"].keys() == names
            assert b'grete_worker_running{job="packed",partition="",worker="0"} 1.0' in get(url, "/metrics")[1]
            os.kill(worker["pid"], signal.SIGKILL)
            until(lambda: samples(url)["grete_worker_starts_total"] == 2)
            until(lambda: get(url, "/readyz")[0] == 200)
            (again,) = json.loads(get(url, "/status.json")[1])["workers"]
            before, after = ([each["tasks"][name]["generation"] for name in names] for each in (worker, again))
            assert all(map(int.__lt__, before, after)), (before, after)
            live = json.loads(get(url, "/page/live.json")[1])
            assert {row["name"]: row["pid"] for row in live["tasks"]} == dict.fromkeys(names, again["pid"])
            up.send_signal(signal.SIGTERM)
            assert up.wait(LIMIT_S) == 0, shown.read_text()
        finally:
            up.kill()
    lines = lines_of(tmp_path / "here" / "logs" / "worker-0.log")
    ready = [(line["worker"], line["stage"], line["partition"]) for line in lines if line["event"] == "ready"]
    assert sorted(ready) == sorted((0, stage, n) for stage in ("split", "count") for n in range(3) for _ in range(2))
    started = [line for line in lines if line["event"] == "worker started"]
    assert [(line["worker"], "partition" in line) for line in started] == [(0, False)] * 2


@pytest.mark.timeout(600)
def test_partitions_move_to_other_workers_while_the_job_runs(tmp_path: Path) -> None:
    """Signals ask for one worker more, or one less. One is killed on the way, and each word is counted once."""
    (tmp_path / "job.py").write_text(COUNT)
    (tmp_path / "lines").write_text("".join(f"{number}\t{number % 7} {number % 11}\n" for number in range(500)))
    shown, grete = tmp_path / "up.txt", [sys.executable, "-m", "grete.cli"]
    command = [*grete, "up", "job.py", "--processes=1", "--http=0", "--directory=here"]

    def write() -> None:
        subprocess.run(
            [*grete, "topic", "write", "job.py", "lines", "lines", "--keys", "--directory=here"],
            cwd=tmp_path,
            check=True,
        )

    with (
        shown.open("wb") as out,
        subprocess.Popen(command, cwd=tmp_path, stdout=out, stderr=out) as up,
    ):
        try:
            url = until(lambda: url_in(shown))

            def shared() -> list[list[int]]:
                """Return the partitions of each worker, once all tasks run."""
                if get(url, "/readyz")[0] != 200:
                    return []
                return [worker["partitions"] for worker in json.loads(get(url, "/status.json")[1])["workers"]]

            until(lambda: shared() == [[0, 1, 2]])
            write()
            os.kill(up.pid, signal.SIGUSR1)
            until(lambda: shared() == [[0, 1], [2]])
            os.kill(up.pid, signal.SIGUSR1)
            write()
            until(lambda: len(shared()) == 3)
            write()
            os.kill(json.loads(get(url, "/status.json")[1])["workers"][1]["pid"], signal.SIGKILL)
            os.kill(up.pid, signal.SIGUSR2)
            until(lambda: len(shared()) == 2)
            write()
            os.kill(up.pid, signal.SIGUSR2)
            until(lambda: shared() == [[0, 1, 2]])
            os.kill(up.pid, signal.SIGUSR2)
            until(lambda: "--processes stays 1" in shown.read_text())
            up.send_signal(signal.SIGTERM)
            assert up.wait(LIMIT_S) == 0, shown.read_text()
        finally:
            up.kill()
    said = shown.read_text()
    assert "--processes is 2 now: partitions move as soon as all tasks run" in said
    drained = subprocess.run([*grete, "run", "job.py", "--directory=here"], cwd=tmp_path, check=False)
    assert drained.returncode == 0
    scan = [*grete, "state", "scan", "job.py", "counts", "--directory=here"]
    found = subprocess.run(scan, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    words = Counter(word for number in range(500) for word in (str(number % 7), str(number % 11)))
    counted = {key: int(value) for key, value in (line.split() for line in found.splitlines())}
    assert counted == {word: 4 * count for word, count in words.items()}
