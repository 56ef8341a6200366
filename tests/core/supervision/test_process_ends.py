"""The ends of worker processes on virtual time: what is restarted, given up, and told."""

import itertools
from collections import Counter
from dataclasses import replace

import msgspec
import pytest

from grete.core.supervision.actions import Tell
from grete.core.supervision.assignment import HostedState
from grete.core.supervision.policy import Policy
from grete.core.supervision.process_end import ExitKind, ProcessExit
from grete.core.supervision.supervised_worker import KilledFor, SupervisedWorker
from grete.errors import ExitCode
from grete.halts import HaltCode
from grete.protocol.report import EndReport, ErrorPlace, TaskEnd, TaskEndReason, TaskState
from grete.protocol.report import WorkerReport as Report
from grete.settings import Settings
from tests.core.supervision.machines import SOON_S, crashing, machine
from tests.core.supervision.world import KILLED, POLICY, exit_with
from tests.support.reports import task_report

STARTING, RUNNING, STOPPING = HostedState.STARTING, HostedState.RUNNING, HostedState.STOPPING
ABORT = ProcessExit(ExitKind.ABORTED, -6, "aborted by SIGABRT", None, None, "w.log", disk_full=False, at_ms=0)


def test_a_crash_costs_one_restart_and_is_told_once() -> None:
    """The first restart comes at once; what was committed since begins the count again."""
    made = machine(0)
    made.crashes = crashing(exit_with(1), 1)
    made.run(SOON_S)
    worker = made.core.workers[0]
    assert made.told == ["worker 0 crashed, code 1: it broke (log: w.log); restart in 0.0 s"]
    assert (worker.starts, worker.restarts.crashes, worker.restarts.last) == (2, 0, None)
    assert worker.restarts.counts["other"] == 1


def test_a_worker_that_always_crashes_is_given_up() -> None:
    """An empty commit is no progress: restarts_max crashes with growing waits, then a person must look."""
    made = machine(0)
    made.works = False
    made.crashes = crashing(exit_with(1))
    made.run(60)
    (error,) = made.errors
    assert error.code is HaltCode.GIVEN_UP
    assert "worker 0 crashed 4 times without progress between (code 1): it broke (log: w.log)" in str(error)
    assert (made.spawns[0], made.hosted()) == (4, {0: HostedState.HALTED})
    waits = [later - end for end, later in itertools.pairwise(made.ended[0])]
    assert waits == sorted(waits)
    assert waits[0] < waits[1] < waits[2]
    assert made.told[1] == "worker 0 crashed, code 1, as the last time; restart in 0.1 s"
    made.crashes = lambda *_: None
    made.assign(0)
    made.run(SOON_S)
    assert made.spawns[0] == 4  # not by itself
    made.assign(0, again=[0])
    made.run(SOON_S)
    assert made.hosted() == {0: RUNNING}


def test_a_log_that_is_away_uses_up_no_restart() -> None:
    """A worker that has waited in vain is started again and again; its own crashes still count."""
    made = machine(0)
    made.works = False
    made.crashes = crashing(exit_with(1, "log away", "Kafka at b:1 did not answer"), 30)
    made.run(120)
    assert (made.hosted(), made.errors, made.spawns[0]) == ({0: RUNNING}, [], 31)
    assert made.told[0] == (
        "worker 0 gave up waiting for the log: Kafka at b:1 did not answer (log: w.log); restart in 0.0 s"
    )
    made.crashes = crashing(exit_with(1))
    made.run(120)
    assert (len(made.errors), made.spawns[0]) == (1, 34)


@pytest.mark.parametrize(
    ("end", "reason", "words"),
    [
        (ABORT, "aborted", "was aborted by SIGABRT"),
        (exit_with(1, "hung", "in f, line 1"), "hung", "hung, and was ended"),
        (exit_with(1, "task error", "no key"), "task error", "crashed, code 1"),
    ],
)
def test_an_end_has_its_reason(end: ProcessExit, reason: str, words: str) -> None:
    """The process has said it, or the signal that has ended it tells."""
    made = machine(0)
    made.works = False
    made.crashes = crashing(end, 1)
    made.run(SOON_S)
    last = made.core.workers[0].restarts.last
    assert last is not None
    assert last.reason == reason
    assert made.told[0].startswith(f"worker 0 {words}")


@pytest.mark.parametrize("code", [ExitCode.FENCED, ExitCode.DONE])
def test_a_worker_that_another_process_has_replaced_stays_away(code: ExitCode) -> None:
    """It does not start again by itself, and the others go on."""
    made = machine(0, 1)
    made.crashes = lambda number, _: exit_with(code) if number == 0 else None
    made.run(60)
    assert (made.spawns, made.told) == ({0: 1, 1: 1}, [])
    assert made.core.workers[0].exit_code == code
    made.crashes = lambda *_: None
    made.assign(0, 1, again=[0])
    made.run(SOON_S)
    assert made.hosted() == {0: RUNNING, 1: RUNNING}


def test_kills_on_request_without_progress_between_are_given_up() -> None:
    """They are no news one by one, and a worker that does nothing is one that a person must look at."""
    made = machine(0)
    made.works = False
    for _ in range(POLICY.restarts_max + 1):
        made.kill(0)
        made.run(SOON_S)
    assert [error.code for error in made.errors] == [HaltCode.GIVEN_UP]
    assert made.core.workers[0].restarts.last is None


def test_a_halt_is_given_up_at_once() -> None:
    """Its error is raised, with the partition that a person must look at; the others go on."""
    made = machine(0, 1)
    made.crashes = lambda number, _: exit_with(ExitCode.HALTED, "halted", "lost") if number == 0 else None
    made.run(SOON_S)
    assert [str(error) for error in made.errors] == ["worker 0 halted: lost (log: w.log)"]
    assert made.hosted() == {0: HostedState.HALTED, 1: RUNNING}
    made.assign(1)
    assert made.hosted() == {0: HostedState.HALTED, 1: RUNNING}  # until a person has looked


def test_back_off_grows_to_its_bound() -> None:
    """The first restart is immediate, then waits double; no count of ends makes the wait too large to be computed."""
    policy = replace(POLICY, backoff_ms=100, backoff_ms_max=300)
    assert [policy.restart_wait_ms(ends) for ends in (1, 2, 3, 4, 5, 1 << 20)] == [0, 100, 200, 300, 300, 300]
    assert Policy.of(Settings(liveness_timeout_ms=8_000, shutdown_timeout_ms=500)).silent_s_max == 12.0


@pytest.mark.parametrize(
    ("killed_for", "end", "late"),
    [
        (KilledFor.REQUEST, KILLED, True),
        (KilledFor.DELAY, KILLED, True),
        (None, exit_with(1, "hung"), True),  # its stop has timed out
        (None, replace(exit_with(1), reported=None), True),  # likewise, of one that has said nothing
        (None, exit_with(1, "disk"), False),
        (None, exit_with(1, "log away"), False),
        (None, ABORT, False),
    ],
)
def test_what_ends_a_stop_is_told_apart(killed_for: KilledFor | None, end: ProcessExit, late: bool) -> None:
    """Only a worker that was still at it was too slow."""
    worker = SupervisedWorker(0)
    worker.killed_for = killed_for
    was_late, told = worker.unfinished(end)
    assert (was_late, "((" in told) == (late, False)


def test_a_halt_is_that_of_one_partition() -> None:
    """Its process has two. Another member may run the other one, which has done nothing wrong."""
    made = machine(0, 2, processes=1)
    lost = EndReport(reason="halted", text="it is lost", place=ErrorPlace(stage="count", partition=2))
    made.crashes = crashing(replace(exit_with(ExitCode.HALTED), reported=lost), 1)
    made.run(SOON_S)
    assert made.hosted() == {2: HostedState.HALTED, 0: STARTING}
    assert (made.errors[0].task, made.errors[0].stage) == ("count-2", "count")
    made.assign(0)
    made.run(SOON_S)
    assert made.hosted() == {0: RUNNING}


def test_a_full_disk_is_named() -> None:
    """A worker may not have been able to say so: the disk tells it. What hung, or was killed, has its own reason."""
    full = replace(exit_with(1), reported=None, disk_full=True)
    assert full.reason(silent=False) == "disk"
    assert replace(full, logged=EndReport(reason="hung", text="in f")).reason(silent=False) == "hung"
    assert replace(full, kind=ExitKind.KILLED, code=-9).reason(silent=False) == "killed"
    assert full.reason(silent=True) == "hung"
    said = replace(KILLED, reported=EndReport(reason="log away", text="nobody answers"))
    assert said.reason(silent=False) == "log away"  # it was killed while it ended
    assert replace(KILLED, logged=EndReport(reason="other", text="old")).cause(silent=False) is None


def test_tasks_that_end_alone_are_told_of() -> None:
    """Once each; their failures count for the worker, but one that was fenced is no failure."""
    made = machine(0)
    task, ends = task_report("count-0"), Counter[TaskEndReason]()

    def say(reason: TaskEndReason, count: int, restart_ms: int | None = None, trace: str = "") -> list[str]:
        end = TaskEnd(reason=reason, text="no", traceback=trace, code="", restart_ms=restart_ms, at_ms=0)
        status = TaskState.FENCED if reason == "fenced" else TaskState.ENDED
        ends[reason] = count
        said = msgspec.structs.replace(task, status=status, end=end, ends=dict(ends))
        return [tell.text for tell in made.core.reported(0, Report(tasks=(said,))) if isinstance(tell, Tell)]

    (first,) = say("task error", 1, restart_ms=0, trace="in f")
    assert first == "count-0 ended (task error): no; the other tasks go on; it starts again in 0.0 s\n  in f"
    assert say("task error", 1) == []
    assert say("halted", 1) == ["count-0 has halted; the other tasks of its worker stop: no"]
    (fenced,) = say("fenced", 1)
    assert fenced == "count-0 was fenced: another process has taken it; the other tasks go on: no"
    assert made.core.workers[0].restarts.counts["task error"] == 1
    assert made.hosted() == {0: HostedState.FENCED}
    assert made.core.takes_input  # what is here does
    assert made.core.workers[0].life_of(task) == (0, 1, 0)
    made.kill(0)
    made.run(SOON_S)
    assert made.core.workers[0].reports.tasks["count-0"].status is TaskState.RUNNING


def test_a_halt_while_the_machine_stops_is_raised() -> None:
    """A person must look, whatever else ends."""
    made = machine(0, 1)
    made.workers[0].deaf, made.workers[0].end = True, exit_with(ExitCode.HALTED, "halted", "lost")
    made.stop()
    (error,) = made.errors
    assert "worker 0 halted: lost" in str(error)
    last = made.core.workers[0].restarts.last
    assert (last is not None and last.text, made.hosted()[0]) == ("lost", HostedState.HALTED)


def test_a_fenced_worker_ends_while_the_machine_stops() -> None:
    """It has lost its partition, which is no failure of the stop."""
    made = machine(0)
    made.workers[0].deaf, made.workers[0].end = True, exit_with(ExitCode.FENCED)
    made.stop()
    assert (made.core.failures, made.core.workers[0].exit_code) == ([], ExitCode.FENCED)
    assert made.hosted() == {0: HostedState.FENCED}


def test_a_standby_of_a_partition_that_was_fenced_is_told_of() -> None:
    """The leader waits for it to catch up, though the worker, which had another partition too, stays away."""
    made = machine(0, 1, processes=1)
    made.workers[0].end = exit_with(ExitCode.FENCED)
    made.run(1)
    made.assign(1, standby={0})
    made.run(SOON_S)
    assert made.hosted() == {0: HostedState.STANDBY, 1: HostedState.FENCED}


def test_an_empty_commit_is_no_progress() -> None:
    """A worker that commits nothing it has read, and then crashes, is given up as one that commits nothing."""
    made = machine(0)
    made.works = False
    made.crashes = lambda _number, process: exit_with(1) if process.said_s > process.due_s else None
    made.run(60)
    assert (len(made.errors), made.spawns[0]) == (1, 4)
