"""The last report of a worker, in real processes: its supervisor knows why it ended, and has read no log for that."""

import os
import threading
import time
from itertools import count
from pathlib import Path

import pytest

from grete.errors import Halted
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.protocol.report import EndReport, StandbyReport, decode_standby_report
from grete.settings import Settings
from grete.worker.pipes.status_pipe import StatusLines, StatusPipe
from grete.worker.supervisor.local_job import LocalJob
from tests.support.waiting import bounded, until

WORDS = TopicPartition("words", 0)

pytestmark = pytest.mark.chaos  # workers that die

ENDS = """
import logging.config, os, resource, signal
from grete import Input, Job, Record, Store, Task, Topic, int64, utf8

class Obey(Task):
    words = Input(Topic("words", key=utf8, value=utf8))
    seen = Store("seen", key=utf8, value=int64)

    def process(self, record: Record[str, str]) -> None:
        match record.value:
            case "raise":
                {}["cents"]
            case "halt":
                breakpoint()
            case "fill":
                resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # each write fails, that of a log line, too
                self.seen.put("", 1)
            case "silence":
                logging.config.dictConfig({"version": 1, "root": {"level": "CRITICAL"}})
                logging.disable(logging.CRITICAL)
                logging.getLogger("grete").handlers = []
                {}["cents"]
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "abort":
                os.abort()
            case code:
                os._exit(int(code))

job = Job("obeys", stages=[Obey])
"""


@pytest.mark.parametrize(
    ("word", "reason", "code", "text", "traceback"),
    [
        ("raise", "task error", "", "stage obey, partition 0: topic words (words[0]), offset 0", "in process"),
        ("halt", "halted", "GRETE-H001", "breakpoint() in ", ""),
        ("fill", "disk", "", "", ""),
        ("silence", "task error", "", "stage obey, partition 0: topic words (words[0]), offset 0", "in process"),
        ("kill", "killed", "", "was killed by SIGKILL", ""),
        ("abort", "aborted", "", "was aborted by SIGABRT", ""),
        ("0", "other", "", "crashed, code 0: the job's code, or a library, has ended the process", ""),
        ("3", "other", "", "crashed, code 3: the job's code, or a library, has ended the process", ""),
        ("4", "other", "", "crashed, code 4: the job's code, or a library, has ended the process", ""),
    ],
)
def test_a_worker_reports_why_it_ends(
    tmp_path: Path, word: str, reason: str, code: str, text: str, traceback: str
) -> None:
    """Its log is away by the time its supervisor looks; only a process that was killed could say nothing."""
    (tmp_path / "obeys.py").write_text(ENDS)
    job_directory, reference = JobDirectory(tmp_path / "job"), str(tmp_path / "obeys.py")
    with LocalJob(load_job(reference), reference, job_directory, Settings(checkpoint_interval_ms=20)) as local:
        worker = local.supervisor.workers[0]
        until(lambda: worker.reports.takes_input, step=lambda: local.poll(20), saw=lambda: local.supervisor.news)
        process = local.supervisor.process(0)
        assert process is not None
        local.metadata.produce_with_meta([ExternalRecord(WORDS, None, word.encode(), 1)], {})
        with bounded("the worker's end", job_directory.worker_log(0).read_text):
            process.wait()
        job_directory.worker_log(0).unlink()
        if reason == "halted":
            with pytest.raises(Halted, match=code):
                local.poll(0)
        else:
            until(lambda: worker.restarts.last is not None, step=lambda: local.poll(0))
        end = worker.restarts.last
        assert end is not None
        assert (end.reason, end.code) == (reason, code)
        assert end.text.startswith(text)
        assert traceback in end.traceback


def test_the_last_report_is_whole_although_the_pipe_is_full() -> None:
    """The pipe is full of what was said before: the end comes behind the rest of that, as soon as there is room."""
    reader, writer = os.pipe()
    pipe, lines, said = StatusPipe(writer), StatusLines(), list[bytes]()
    before = StandbyReport(tasks=(), end=EndReport(reason="other", text="x" * (1 << 20)))
    last = StandbyReport(tasks=(), end=EndReport(reason="disk", text="full"))
    pipe.report(before)  # goes out in parts
    pid = os.fork()
    if pid == 0:
        pipe.end(last)
        os._exit(0)
    os.close(writer)
    while (more := lines.read(reader)) is not None:
        said += more
    os.waitpid(pid, 0)
    os.close(reader)
    assert [decode_standby_report(line) for line in said] == [before, last]


def test_a_supervisor_that_is_stopped_for_minutes_has_the_last_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """After five seconds it was given up, and a worker that was fenced meanwhile was started again: its code was lost.

    A clock that is a minute later at each look is that supervisor: it reads once the end has begun to wait.
    """
    reader, writer = os.pipe()
    pipe, lines, said = StatusPipe(writer), StatusLines(), list[bytes]()
    pipe.report(StandbyReport(tasks=(), end=EndReport(reason="other", text="x" * (1 << 18))))
    last = StandbyReport(tasks=(), end=EndReport(reason="disk", text="full"))
    looks = count(step=60)
    waits = threading.Event()

    def minute_later() -> float:
        if (now := next(looks)) >= 60:
            waits.set()
        return float(now)

    monkeypatch.setattr(time, "monotonic", minute_later)

    def end() -> None:
        pipe.end(last)
        os.close(writer)

    ending = threading.Thread(target=end)
    ending.start()
    waits.wait()
    while not said or decode_standby_report(said[-1]) != last:
        more = lines.read(reader)
        assert more is not None
        said += more
    ending.join()
    os.close(reader)
