"""A worker whose loop does not turn any more, in real processes: its stacks are logged, and another one takes over."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from grete.errors import ExitCode, TransientError
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.worker.supervisor.local_job import LocalJob
from tests.support.reports import positions
from tests.support.waiting import bounded, until
from tests.worker.workers import WorkerUnderTest, word_log

pytestmark = pytest.mark.chaos  # workers that die

WORDS, COUNTS = TopicPartition("words", 0), TopicPartition("counts", 0)
LIVENESS_MS = 2_000  # a busy machine lets a process wait for a second

CODE = '''
import ctypes, threading, time
from pathlib import Path
from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8

def lock_twice(library):
    """No signal interrupts it."""
    mutex = ctypes.create_string_buffer(64)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)

def endless_loop():
    while True:
        pass

def sleep():
    time.sleep(3_600)

def blocking_call():
    lock_twice(ctypes.CDLL(None))

def blocking_call_that_holds_the_interpreter():
    lock_twice(ctypes.PyDLL(None))

def deadlock():
    lock = threading.Lock()
    with lock, lock:
        pass

def nothing():
    """The test stops the process."""

class Count(Task):
    words = Input(Topic("words", key=utf8, value=utf8))
    total = Store("total", key=utf8, value=int64)
    counts = Output(Topic("counts", key=utf8, value=int64))

    def process(self, record: Record[str, str]) -> None:
        n = self.total.get(record.value, 0) + 1
        self.total.put(record.value, n)
        self.counts.send(record.value, n)
        reached = Path(__file__).with_name("reached")
        if record.value == "stop here" and not reached.exists():
            reached.touch()
            HANG()
        elif record.value == "slow":
            time.sleep(0.05)

job = Job("counting", stages=[Count], mode="MODE")
'''


def code(folder: Path, hang: str, mode: str = "aligned") -> str:
    """Write the job; its code hangs once, in ``hang``, at a word."""
    file = folder / "counting.py"
    file.write_text(CODE.replace("HANG()", f"{hang}()").replace('"MODE"', f'"{mode}"'))
    return str(file)


def feed(log: object, *words: str) -> None:
    """Append words."""
    assert isinstance(log, EmbeddedLog)
    log.produce_with_meta([ExternalRecord(WORDS, None, word.encode(), 1) for word in words], {})


def counted(log: object) -> list[tuple[str, int]]:
    """Return (word, total) of everything sent."""
    assert isinstance(log, EmbeddedLog)
    rows = log.read(COUNTS, 0, 1 << 30)
    return [((row.key or b"").decode(), int.from_bytes(row.value or b"", "big")) for row in rows]


def poll_until(local: LocalJob, condition: Callable[[], bool]) -> None:
    """Poll until the condition holds."""
    until(condition, step=lambda: local.poll(50), saw=lambda: (local.supervisor.workers, local.supervisor.news))


def undisturbed(folder: Path, reference: str, liveness_ms: int, words: int) -> list[tuple[str, int]]:
    """Let a worker take longer than its bound for that many slow words, and check that it is the first one to the end.

    Return what it has sent.
    """
    settings = Settings(checkpoint_interval_ms=50, liveness_timeout_ms=liveness_ms)
    with LocalJob(load_job(reference), reference, JobDirectory(folder / "job"), settings) as local:
        worker = local.supervisor.workers[0]
        feed(local.metadata, *["slow"] * words)
        poll_until(local, lambda: local.drained(local.ends()))
        local.stop()
        assert (worker.starts, local.supervisor.news) == (1, [])
        return counted(local.log)


@pytest.mark.usefixtures("started_by_exec")  # its whole stack is logged
@pytest.mark.parametrize(
    ("hang", "mode"),
    [
        ("endless_loop", "aligned"),
        ("sleep", "deterministic"),
        ("deadlock", "aligned"),
        ("blocking_call", "aligned"),
        ("blocking_call_that_holds_the_interpreter", "deterministic"),
    ],
)
def test_a_worker_that_hangs_is_replaced(tmp_path: Path, hang: str, mode: str) -> None:
    """Its supervisor says where it was, and starts another one: each record counts once, and each output is there."""
    reference = code(tmp_path, hang, mode)
    settings = Settings(checkpoint_interval_ms=50, liveness_timeout_ms=LIVENESS_MS)
    job_directory = JobDirectory(tmp_path / "job")
    with LocalJob(load_job(reference), reference, job_directory, settings) as local:
        worker = local.supervisor.workers[0]
        feed(local.metadata, "a", "a", "stop here", "a")
        poll_until(local, lambda: local.drained(local.ends()))
        local.stop()
        assert worker.exit_code == ExitCode.DONE
        news = local.supervisor.news[0]
        assert news.startswith("worker 0 hung, and was ended: it made no progress for 0:00:02")
        function = "lock_twice" if "call" in hang else hang
        assert f"it was in {function} ({reference}, line " in news
        assert news.endswith(" in process")  # the innermost call comes first, the first one that is not ours last
        assert counted(local.log) == [("a", 1), ("a", 2), ("stop here", 1), ("a", 3)]
    assert "Timeout (0:00:02)!" in job_directory.worker_log(0).read_text()


IMPORTED = """
import sys
if {"grete.worker.life.process_main", "grete.cli"} & {*sys.orig_argv}:
    reached = Path(__file__).with_name("reached")
    if not reached.exists():
        reached.touch()
        HANG()
"""


@pytest.mark.usefixtures("started_by_exec")  # a worker is known by its command line
def test_a_worker_that_hangs_in_the_import_of_its_code_is_replaced(tmp_path: Path) -> None:
    """A connection that is opened beside the classes, say: no loop turns yet, and the worker has said nothing."""
    reference = code(tmp_path, "nothing")
    Path(reference).write_text(Path(reference).read_text() + IMPORTED.replace("HANG", "sleep"))
    settings = Settings(checkpoint_interval_ms=50, liveness_timeout_ms=LIVENESS_MS)
    with LocalJob(load_job(reference), reference, JobDirectory(tmp_path / "job"), settings) as local:
        feed(local.metadata, "a", "a")
        poll_until(local, lambda: local.drained(local.ends()))
        local.stop()
        news = local.supervisor.news[0]
        assert news.startswith("worker 0 hung, and was ended: it made no progress for 0:00:02: it was in sleep (")
        assert counted(local.log) == [("a", 1), ("a", 2)]
    (tmp_path / "reached").unlink()
    options = [f"--set=liveness_timeout_ms={LIVENESS_MS}"]
    with WorkerUnderTest(tmp_path / "job", *options, reference=reference, task="count-0") as worker:
        assert worker.ends() == ExitCode.FAILED
        assert "Timeout (0:00:02)!" in worker.log_path.read_text()


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_a_worker_whose_process_is_stopped_is_replaced(tmp_path: Path, mode: str) -> None:
    """SIGSTOP: it cannot say anything itself, so its supervisor kills it for its silence."""
    reference = code(tmp_path, "nothing", mode)
    settings = Settings(checkpoint_interval_ms=50, liveness_timeout_ms=LIVENESS_MS)
    with LocalJob(load_job(reference), reference, JobDirectory(tmp_path / "job"), settings) as local:
        worker = local.supervisor.workers[0]
        feed(local.metadata, "a", "a")
        poll_until(local, lambda: local.drained(local.ends()))
        process = local.supervisor.process(0)
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        poll_until(local, lambda: worker.starts > 1)
        feed(local.metadata, "a")
        poll_until(local, lambda: local.drained(local.ends()))
        local.stop()
        assert local.supervisor.news[0].startswith("worker 0 said nothing for ")
        assert worker.exit_code == ExitCode.DONE
        assert counted(local.log) == [("a", 1), ("a", 2), ("a", 3)]


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_a_batch_that_takes_long_is_no_hang(tmp_path: Path, mode: str) -> None:
    """A loop that is in one batch for longer than both bounds, but goes from record to record: nothing is restarted."""
    reference = code(tmp_path, "nothing", mode)
    assert undisturbed(tmp_path, reference, 5_000, 200) == [("slow", n) for n in range(1, 201)]


MANY_FILES = """
import os, resource, sys
if "grete.worker.life.process_main" in sys.orig_argv:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4_096), most))
    FILES = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    assert FILES[-1] > 1_023
"""


@pytest.mark.usefixtures("started_by_exec")  # the files are the worker's own
def test_a_worker_with_many_open_files_is_no_hang(tmp_path: Path) -> None:
    """As one of 96 tasks has: what watches it goes on above file 1,023."""
    reference = code(tmp_path, "nothing")
    with Path(reference).open("a") as file:
        file.write(MANY_FILES)
    assert undisturbed(tmp_path, reference, LIVENESS_MS, 80) == [("slow", n) for n in range(1, 81)]


@pytest.mark.parametrize("hang", ["endless_loop", "sleep", "blocking_call"])
def test_a_worker_without_a_supervisor_ends_itself(tmp_path: Path, hang: str) -> None:
    """Exit code 1, which a service manager restarts, with all stacks in the log; the next one goes on."""
    reference, directory = code(tmp_path, hang), tmp_path / "job"
    log = word_log(directory, load_job(reference))
    feed(log, "a", "stop here", "a")
    options = ["--set=checkpoint_interval_ms=50", f"--set=liveness_timeout_ms={LIVENESS_MS}"]
    with WorkerUnderTest(directory, *options, reference=reference, task="count-0") as worker:
        assert worker.ends() == ExitCode.FAILED
        said = worker.log_path.read_text()
    assert "Timeout (0:00:02)!" in said
    assert f'File "{reference}"' in said
    with WorkerUnderTest(directory, *options, reference=reference, task="count-0") as worker:
        worker.until(lambda status: positions(status) == {"words[0]": 3})
        worker.signal(signal.SIGTERM)
        assert worker.ends() == ExitCode.DONE
    assert counted(log) == [("a", 1), ("stop here", 1), ("a", 2)]


@pytest.mark.parametrize("hang", ["endless_loop", "sleep", "blocking_call"])
def test_a_stop_does_not_wait_for_code_that_blocks(tmp_path: Path, hang: str) -> None:
    """SIGTERM while a record is processed: the worker ends when its time for a stop is over, with exit code 1."""
    reference, directory = code(tmp_path, hang), tmp_path / "job"
    log = word_log(directory, load_job(reference))
    feed(log, "a", "stop here", "a")
    with WorkerUnderTest(directory, "--set=shutdown_timeout_ms=500", reference=reference, task="count-0") as worker:
        until((tmp_path / "reached").exists)
        worker.signal(signal.SIGTERM)
        assert worker.ends() == ExitCode.FAILED
        assert "Timeout (0:00:01" in worker.log_path.read_text()
    with WorkerUnderTest(directory, reference=reference, task="count-0") as worker:
        worker.until(lambda status: positions(status) == {"words[0]": 3})
        worker.signal(signal.SIGTERM)
        assert worker.ends() == ExitCode.DONE
    assert counted(log) == [("a", 1), ("stop here", 1), ("a", 2)]


@pytest.mark.parametrize("hang", ["sleep", "blocking_call_that_holds_the_interpreter"])
def test_a_job_stops_though_a_worker_hangs(tmp_path: Path, hang: str) -> None:
    """Its supervisor kills what does not end by itself, and says that the last inputs come again."""
    reference = code(tmp_path, hang)
    settings = Settings(shutdown_timeout_ms=500)
    with LocalJob(load_job(reference), reference, JobDirectory(tmp_path / "job"), settings) as local:
        feed(local.metadata, "a", "stop here", "a")
        poll_until(local, (tmp_path / "reached").exists)
        with bounded("the stop to return", lambda: local.supervisor.news):
            local.stop()
        (news,) = local.supervisor.news
        assert news.startswith("worker 0 did not stop in time (")
        assert news.endswith("what it had not committed is processed again")
        with pytest.raises(TransientError, match=r"1 of 1 workers did not stop within shutdown_timeout_ms = 500"):
            local.require_stopped()


@pytest.mark.parametrize("command", ["up", "run"])
def test_a_command_that_a_hanging_worker_keeps_from_its_stop_fails(tmp_path: Path, command: str) -> None:
    """Exit code 1, and the last lines say which worker it was, where it hung, and that its last inputs come again."""
    reference = code(tmp_path, "sleep")
    feed(word_log(tmp_path / "job", load_job(reference)), "a", "stop here", "a")
    options = [
        "--directory",
        str(tmp_path / "job"),
        "--set=shutdown_timeout_ms=500",
        *["--follow"] * (command == "run"),
    ]
    with (tmp_path / "said").open("wb+") as said:
        ran = subprocess.Popen(
            [sys.executable, "-m", "grete.cli", command, reference, *options], stdout=said, stderr=said
        )
        with ran:
            until((tmp_path / "reached").exists)
            ran.terminate()
            with bounded("the command to end"):
                assert ran.wait() == ExitCode.FAILED
    text = " ".join((tmp_path / "said").read_text().split())
    assert "worker 0 did not stop in time (it made no progress for" in text
    assert "grete: 1 of 1 workers did not stop within shutdown_timeout_ms = 500" in text
