"""A supervisor whose partitions come and go while it runs: over real worker processes."""

import signal
from pathlib import Path

import pytest

from grete.core.supervision.assignment import Assignment, HostedShare, HostedState
from grete.core.supervision.supervised_worker import SupervisedWorker
from grete.errors import Halted
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.protocol.ids import TopicPartition
from grete.protocol.report import InputPosition, InputReport, TaskReport, TaskState, WorkerReport
from grete.settings import Settings
from grete.worker.supervisor.input_progress import InputProgress
from grete.worker.supervisor.local_job import LocalJob
from tests.support.reports import task_report
from tests.worker.test_supervisor import PAIR, poll_until
from tests.worker.workers import WorkerUnderTest

STARTING, RUNNING, STOPPING = HostedState.STARTING, HostedState.RUNNING, HostedState.STOPPING
FENCED, HALTED = HostedState.FENCED, HostedState.HALTED


def of(*partitions: int) -> Assignment:
    """Return an assignment of these partitions."""
    return Assignment(frozenset(partitions))


def local_job(directory: Path, assignment: Assignment, *, code: str = PAIR, processes: int | None = None) -> LocalJob:
    """Return a job of four partitions on this machine, which shares them with others."""
    path = directory / "pair.py"
    path.write_text(code.replace("partitions=2", "partitions=4"))
    job_directory = JobDirectory(directory / "job")
    settings = Settings(shutdown_timeout_ms=2_000, restarts_max=1, restart_backoff_ms=1)
    return LocalJob(load_job(str(path)), str(path), job_directory, settings, share=HostedShare(processes, assignment))


def pids(local: LocalJob) -> dict[int, int]:
    """Return the process of each worker that runs."""
    found = {number: local.supervisor.process(number) for number in local.supervisor.workers}
    return {number: process.pid for number, process in found.items() if process is not None}


def running(local: LocalJob, *partitions: int) -> bool:
    """Whether these partitions are hosted, and no other, and their tasks take input."""
    return local.supervisor.hosted() == dict.fromkeys(partitions, RUNNING)


def generations(local: LocalJob) -> dict[str, int]:
    """Return task → its generation."""
    workers = local.supervisor.workers.values()
    return {name: task.generation for worker in workers for name, task in worker.reports.tasks.items()}


def test_others_may_have_what_has_committed() -> None:
    """A partition that was taken away is stored here when its tasks have stopped, though the process is still there."""
    worker = SupervisedWorker(0)

    def say(*tasks: TaskReport) -> tuple[HostedState, HostedState]:
        worker.reports.take(WorkerReport(tasks=tasks), worker.partitions)
        return worker.hosted_state(0), worker.hosted_state(1)

    worker.partitions = 0, 1
    first, second = task_report("a-0", status=TaskState.STOPPED), task_report("b-0")
    assert say(first, second, task_report("a-1")) == (STARTING, RUNNING)
    worker.partitions = (1,)
    assert say(first, second, task_report("a-1")) == (STOPPING, RUNNING)
    second = task_report("b-0", status=TaskState.STOPPED)
    assert say(first, second, task_report("a-1")) == (HostedState.STORED, RUNNING)
    worker.kill_at_s = 1.0
    assert say(first, second, task_report("a-1")) == (HostedState.STORED, STOPPING)


def test_partitions_come_and_go_and_the_others_are_not_disturbed(tmp_path: Path) -> None:
    """A new one gets a process of its own; one that is taken away commits, and ends alone and without a word."""
    with local_job(tmp_path, of()) as local:
        supervisor = local.supervisor
        local.poll(0)  # nothing to do, and nothing is wrong
        assert (supervisor.hosted(), local.drained(local.ends())) == ({}, False)
        supervisor.assign(of(0, 2))
        assert supervisor.hosted() == {0: STARTING, 2: STARTING}
        poll_until(local, lambda: supervisor.hosted() == {0: RUNNING, 2: RUNNING})
        kept = pids(local)[2]
        supervisor.assign(of(1, 2))
        assert supervisor.hosted() == {0: STOPPING, 1: STARTING, 2: RUNNING}
        poll_until(local, lambda: supervisor.hosted() == {1: RUNNING, 2: RUNNING})
        assert (pids(local)[2], supervisor.news) == (kept, [])
        events = (tmp_path / "job" / "logs" / "worker-0.log").read_text()
        assert '"worker done"' in events
        supervisor.assign(of(0, 1, 2))
        poll_until(local, lambda: supervisor.hosted() == {0: RUNNING, 1: RUNNING, 2: RUNNING})
        assert supervisor.workers[0].starts == 2  # it goes on counting
        local.stop()
        assert not supervisor.core.failures


def test_what_comes_back_while_it_stops_starts_again(tmp_path: Path) -> None:
    """The process that stops ends first: the next one opens the same store."""
    with local_job(tmp_path, of(0)) as local:
        supervisor = local.supervisor
        poll_until(local, lambda: supervisor.hosted() == {0: RUNNING})
        before = pids(local)[0]
        supervisor.assign(of())
        supervisor.assign(of(0))
        assert supervisor.hosted() == {0: STOPPING}
        poll_until(local, lambda: supervisor.hosted() == {0: RUNNING})
        assert (pids(local)[0] != before, supervisor.news) == (True, [])


def test_what_does_not_stop_in_time_is_killed(tmp_path: Path) -> None:
    """A process that is frozen does not keep its partition: another machine may have it next."""
    with local_job(tmp_path, of(0, 1)) as local:
        supervisor = local.supervisor
        poll_until(local, lambda: supervisor.hosted() == {0: RUNNING, 1: RUNNING})
        process = supervisor.process(0)
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        supervisor.assign(of(1))
        poll_until(local, lambda: supervisor.hosted() == {1: RUNNING})
        assert process.poll() == -signal.SIGKILL
        (news,) = supervisor.news
        assert news.startswith("worker 0 did not stop in time (it was killed): ")


def test_a_fenced_partition_stays_away_until_it_is_assigned_again(tmp_path: Path) -> None:
    """To start it by itself would take it back. When it has been taken away, it may come as any other."""
    with local_job(tmp_path, of(0)) as local:
        supervisor = local.supervisor
        poll_until(local, lambda: supervisor.hosted() == {0: RUNNING})
        job, other, path = tmp_path / "job", f"--state-directory={tmp_path / 'other'}", str(tmp_path / "pair.py")
        for start in (2, 3):
            with WorkerUnderTest(job, other, reference=path, task="pass-0") as thief:
                thief.running()
                poll_until(local, lambda: supervisor.hosted() == {0: FENCED})
                supervisor.assign(of(0))
                local.poll(0)
                assert supervisor.hosted() == {0: FENCED}
            if start == 2:
                supervisor.assign(of(0), again=(0,))
            else:
                supervisor.assign(of())
                assert supervisor.hosted() == {}
                supervisor.assign(of(0))
            poll_until(local, lambda: supervisor.hosted() == {0: RUNNING})
            assert supervisor.workers[0].starts == start


def test_what_has_halted_is_told_of_until_it_is_to_start_again(tmp_path: Path) -> None:
    """Also when the assignment gives it to no one: a person must look. The others go on."""
    code = PAIR.replace("class Pass(Task):", "class Pass(Task):\n    def init(self) -> None:\n        check()").replace(
        "\nclass Pass",
        "\nfrom pathlib import Path\n\ndef check() -> None:\n"
        "    if Path(__file__).with_name('broken').exists():\n        raise RuntimeError('this task is broken')\n\n"
        "class Pass",
    )
    with local_job(tmp_path, of(0), code=code) as local:
        supervisor = local.supervisor
        poll_until(local, lambda: supervisor.hosted() == {0: RUNNING})
        (tmp_path / "broken").touch()
        supervisor.assign(of(0, 1))
        with pytest.raises(Halted, match="this task is broken"):
            poll_until(local, lambda: False)
        local.poll(0)  # it was said once
        assert supervisor.hosted() == {0: RUNNING, 1: HALTED}
        supervisor.assign(of(0))
        assert supervisor.hosted() == {0: RUNNING, 1: HALTED}
        (tmp_path / "broken").unlink()
        supervisor.assign(of(0, 1), again=(1,))
        poll_until(local, lambda: supervisor.hosted() == {0: RUNNING, 1: RUNNING})


def test_partitions_come_to_a_process_and_go_while_it_runs(tmp_path: Path) -> None:
    """Each comes to the process that has the fewest; no process ends, and the other tasks take no new generation."""
    with local_job(tmp_path, of(0, 1, 2), processes=2) as local:
        supervisor = local.supervisor
        poll_until(local, lambda: running(local, 0, 1, 2))
        kept, generation = pids(local), generations(local)
        supervisor.assign(of(0, 1, 2, 3))
        assert supervisor.hosted() == {0: RUNNING, 1: RUNNING, 2: RUNNING, 3: STARTING}
        poll_until(local, lambda: running(local, 0, 1, 2, 3))
        assert {number: each.partitions for number, each in supervisor.workers.items()} == {0: (0, 2), 1: (1, 3)}
        supervisor.assign(of(2, 3))
        assert supervisor.hosted() == {0: STOPPING, 1: STOPPING, 2: RUNNING, 3: RUNNING}
        poll_until(local, lambda: running(local, 2, 3))
        supervisor.assign(of(0, 2, 3))
        poll_until(local, lambda: running(local, 0, 2, 3))
        now = generations(local)
        assert (now["pass-2"], now["pass-0"]) == (generation["pass-2"], generation["pass-0"] + 1)
        assert (pids(local), supervisor.news) == (kept, [])
        left = [line for line in (tmp_path / "job" / "logs").glob("*.log") if '"task left"' in line.read_text()]
        assert len(left) == 2
        supervisor.assign(of(2))
        poll_until(local, lambda: running(local, 2) and pids(local).keys() == {0})
        supervisor.kill(0)
        poll_until(local, lambda: running(local, 2))  # what it was told is kept: the next process has it in its spec


def test_a_partition_that_comes_back_at_once_starts_again_in_its_process(tmp_path: Path) -> None:
    """It stops first: the store is opened by one at a time, and the log has answered all that the task had sent."""
    with local_job(tmp_path, of(0, 1), processes=1) as local:
        supervisor = local.supervisor
        poll_until(local, lambda: running(local, 0, 1))
        kept, generation = pids(local), generations(local)
        supervisor.assign(of(1))
        supervisor.assign(of(0, 1))
        supervisor.assign(of(0, 1, 2))  # while 0 still leaves: it comes once
        poll_until(local, lambda: running(local, 0, 1, 2) and generations(local)["pass-0"] > generation["pass-0"])
        assert generations(local)["pass-0"] == generation["pass-0"] + 1
        assert (pids(local), supervisor.news) == (kept, [])


def test_a_fenced_partition_of_a_process_may_be_assigned_again(tmp_path: Path) -> None:
    """The process goes on with the others, and takes it back when it is told so."""
    with local_job(tmp_path, of(0, 1), processes=1) as local:
        supervisor = local.supervisor
        poll_until(local, lambda: running(local, 0, 1))
        kept = pids(local)
        job, other, path = tmp_path / "job", f"--state-directory={tmp_path / 'other'}", str(tmp_path / "pair.py")
        with WorkerUnderTest(job, other, reference=path, task="pass-0") as thief:
            thief.running()
            poll_until(local, lambda: supervisor.hosted() == {0: FENCED, 1: RUNNING})
            supervisor.assign(of(0, 1, 2))
            poll_until(local, lambda: supervisor.hosted() == {0: FENCED, 1: RUNNING, 2: RUNNING})
        supervisor.assign(of(0, 1, 2), again=(0,))
        poll_until(local, lambda: running(local, 0, 1, 2))
        assert pids(local) == kept


def test_what_was_committed_elsewhere_is_no_record_of_this_run() -> None:
    """A partition that comes here goes on where another machine has left it; what it then commits counts at once."""
    first, second = TopicPartition("lines", 0), TopicPartition("lines", 1)
    progress = InputProgress({first: {"pass-0": 10}, second: {"pass-1": 20}}, ["pass-0", "pass-1"])
    workers = [SupervisedWorker(number) for number in (0, 1)]

    def say(number: int, checkpoint_id: int, offset: int, began: int) -> None:
        read = InputReport(topic="lines", partition=number, offset=offset, lag_from=offset)
        begin = InputPosition("lines", number, began)
        task = task_report(f"pass-{number}", checkpoint_id=checkpoint_id, began=(begin,), inputs=(read,), life=1)
        workers[number].reports.take(WorkerReport(tasks=(task,)), (number,))
        progress.take(workers)

    progress.host(["pass-0"])
    say(0, 1, 15, began=10)
    assert progress.committed == {first: 15, second: 20}
    assert progress.records_through({first: 18, second: 99}) == (5, 8)  # of what is read here
    progress.host(["pass-0", "pass-1"])
    say(1, 3, 64, began=60)
    say(0, 3, 18, began=10)
    assert progress.records_committed() == 8 + 4
    assert progress.through() == {first: 18, second: 64}
    assert progress.records_through({first: 18, second: 70}) == (12, 18)
