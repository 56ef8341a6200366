"""A machine's supervisor on virtual time: what starts, what ends, and who is told."""

import pytest
from msgspec.structs import replace

from grete.core.supervision.assignment import HostedState
from grete.core.supervision.lifecycle import ProcessState
from grete.core.supervision.process_end import ExitKind, ProcessExit
from grete.core.supervision.standbys import SupervisedStandby
from grete.core.supervision.supervised_worker import SupervisedWorker
from grete.core.supervision.supervision import SILENT_GAP_S_MAX
from grete.core.supervision.worker_reports import SILENT_S
from grete.errors import ExitCode
from grete.protocol.report import TaskState, WorkerReport
from tests.core.supervision.machines import SOON_S, crashing, machine
from tests.core.supervision.world import KILLED, POLICY, REPORT_S, STEP_S, Machine, exit_with
from tests.support.reports import OF_WORKER, task_report

STARTING, RUNNING, STOPPING = HostedState.STARTING, HostedState.RUNNING, HostedState.STOPPING
ABORT = ProcessExit(ExitKind.ABORTED, -6, "aborted by SIGABRT", None, None, "w.log", disk_full=False, at_ms=0)


def test_a_start_and_a_stop_are_quiet() -> None:
    """Each partition gets a process, all are asked to stop once, and no person is told anything."""
    made = machine(0, 1, 2)
    assert made.spawns == {0: 1, 1: 1, 2: 1}
    made.stop()
    assert (made.told, made.errors, made.core.failures) == ([], [], [])
    assert {worker.exit_code for worker in made.core.workers.values()} == {ExitCode.DONE}


def test_a_machine_knows_the_generations_that_have_ended_on_it() -> None:
    """A process that is there has not ended; of two that had one task it is the higher one."""
    made = machine(0, 1)
    (running,) = {task.generation for worker in made.core.workers.values() for task in worker.reports.tasks.values()}
    tasks = {name for worker in made.core.workers.values() for name in worker.reports.tasks}
    assert made.core.ended == {}
    made.kill(0)
    made.run(SOON_S)
    (first,) = made.core.workers[0].reports.tasks
    assert made.core.ended == {first: running}
    made.core.ended[first] += 5  # of a process that ended before
    made.stop()
    assert made.core.ended == {name: running + 5 * (name == first) for name in tasks}


def test_a_claim_that_may_be_lost_is_no_generation_that_has_ended() -> None:
    """A task that only starts has a number that another process may have won."""
    made = machine(0)
    ran = dict(made.core.workers[0].ran)
    for status in (TaskState.STARTING, TaskState.FENCED, TaskState.STOPPED):
        made.core.reported(0, WorkerReport(tasks=(task_report(status=status, generation=7),)))
    assert made.core.workers[0].ran == ran
    made.core.reported(0, WorkerReport(tasks=(task_report(status=TaskState.RUNNING, generation=7),)))
    assert made.core.workers[0].ran == ran | {"add-up-0": 7}


def test_partitions_come_and_go_and_others_are_not_disturbed() -> None:
    """A partition that is taken away stops, one that comes starts, one that stays keeps its process."""
    made = machine(0, 2)
    made.assign(1, 2)
    assert made.hosted() == {0: STOPPING, 1: STARTING, 2: RUNNING}
    made.run(SOON_S)
    assert made.hosted() == {1: RUNNING, 2: RUNNING}
    made.assign(0, 1, 2)
    made.run(SOON_S)
    assert made.spawns == {0: 2, 1: 1, 2: 1}
    assert made.core.workers[0].starts == 2  # it goes on counting


def test_what_comes_back_while_it_stops_starts_again() -> None:
    """The process that stops ends first: the next one opens the same store."""
    made = machine(0)
    made.assign()
    made.assign(0)
    assert made.hosted() == {0: STOPPING}
    made.run(SOON_S)
    assert (made.hosted(), made.spawns[0], made.told) == ({0: RUNNING}, 2, [])


def test_packed_workers_share_the_partitions() -> None:
    """A process is told what it is to host, and the fewest partitions move."""
    made = machine(0, 1, 2, 3, processes=2)
    assert {worker.partitions for worker in made.core.workers.values()} == {(0, 2), (1, 3)}
    made.assign(0, 1, 3)
    made.run(SOON_S)
    made.assign(0, 1, 3, 5)
    made.run(SOON_S)
    assert {worker.partitions for worker in made.core.workers.values()} == {(0, 5), (1, 3)}
    assert made.spawns == {0: 1, 1: 1}
    made.assign(1)
    made.run(SOON_S)
    assert (made.hosted(), made.told) == ({1: RUNNING}, [])


@pytest.mark.parametrize("gap_s", [STEP_S, 1.5])
def test_a_frozen_worker_is_found_in_time(gap_s: float) -> None:
    """A supervisor that seldom looks still kills the worker and starts it again, and a person is told."""
    made = machine(0, 1)
    made.gap_s = gap_s
    made.workers[1].frozen = True
    made.run(POLICY.silent_s_max + REPORT_S + 3 * gap_s)
    assert made.workers[1].frozen is False
    made.run(SOON_S + gap_s)
    assert made.hosted() == {0: RUNNING, 1: RUNNING}
    *silent, text = made.told
    assert "(is its process stopped?), and was killed" in text
    assert silent == ([] if gap_s > SILENT_GAP_S_MAX else [made.told[0]])
    assert all(each.startswith("worker 1 has said nothing for 5 s: ") for each in silent)
    assert (made.spawns[0], made.spawns[1]) == (1, 2)


@pytest.mark.parametrize("all_sleep", [False, True])
def test_a_supervisor_that_did_not_run_kills_no_worker(all_sleep: bool) -> None:
    """Stopped for ten minutes alone, or with its machine: workers that go on afterwards were never silent."""
    made = machine(0, 1)
    if all_sleep:
        made.pause(600)
    else:
        made.gap_s = 600
        made.run(600)
        made.gap_s = STEP_S
    made.run(60)
    assert (made.spawns, made.told) == ({0: 1, 1: 1}, [])


def test_a_worker_with_a_long_turn_gives_signs_of_life() -> None:
    """It reports nothing while one call of user code lasts, and is not killed."""
    made = machine(0)
    made.workers[0].frozen = True
    for _ in range(10):
        made.run(POLICY.silent_s_max / 2)
        made.core.sign_of_life(0)
    made.workers[0].frozen = False
    made.run(SOON_S)
    assert (made.spawns[0], made.told) == (1, [])


def test_a_worker_that_goes_on_in_time_is_told_of_twice() -> None:
    """A person is told that it says nothing, and that it does again; it is not started a second time."""
    made = machine(0)
    made.workers[0].frozen = True
    made.run(SILENT_S + REPORT_S)
    assert made.core.workers[0].is_silent
    made.workers[0].frozen = False
    made.run(SOON_S)
    assert [text.partition(" (")[0] for text in made.told][1:] == ["worker 0 reports again"]
    assert (made.spawns[0], made.core.workers[0].is_silent) == (1, False)


def test_a_report_that_nothing_goes_on_is_no_progress() -> None:
    """A thread beside the loop says so: its worker is not silent, and is killed all the same."""
    made = machine(0)
    made.workers[0].frozen = True
    while made.spawns[0] == 1:
        made.core.reported(0, WorkerReport(tasks=(), measures=replace(OF_WORKER, goes_on=False)))
        made.run(REPORT_S)
    (text,) = made.told
    assert "and was killed" in text


def test_what_does_not_stop_in_time_is_killed() -> None:
    """A process that is frozen does not keep its partition: another machine may have it next."""
    made = machine(0, 1)
    made.workers[0].frozen = True
    made.assign(1)
    made.run(POLICY.stop_s - STEP_S)
    assert made.hosted() == {0: STOPPING, 1: RUNNING}
    made.run(1.0)
    assert made.hosted() == {1: RUNNING}
    (text,) = made.told
    assert text.startswith("worker 0 did not stop in time (it was killed): ")


def test_a_stop_of_the_machine_names_what_did_not_end() -> None:
    """One is late, one was killed from outside while it stopped, one had just begun: each is told for what it is."""
    made = machine(0, 1)
    made.assign(0, 1, 2)
    made.workers[0].deaf = made.workers[1].frozen = True
    made.crashes = lambda number, _: exit_with(1) if number == 1 else None
    made.run(STEP_S)
    made.core.workers[1].reports.lives()
    made.workers[1].end = exit_with(1)
    made.stop()
    assert [(each.number, each.late) for each in made.core.failures] == [(1, False), (0, True)]
    assert made.told[-1].startswith("worker 0 did not stop in time (it was killed)")
    assert any("worker 1 crashed, code 1 while it stopped" in text for text in made.told)
    assert any("worker 2 was ended by SIGTERM while it was starting" in text for text in made.told)


def test_a_kill_on_request_is_no_news() -> None:
    """A test, or a demo, kills a worker: it starts again, and no person is told."""
    made = machine(0)
    made.kill(0)
    assert made.core.workers[0].reports.tasks == {}
    made.run(SOON_S)
    assert (made.spawns[0], made.told, made.hosted()) == (2, [], {0: RUNNING})
    made.kill(0)
    made.assign()
    made.run(SOON_S)
    assert made.hosted() == {}
    made.assign(0)
    made.run(SOON_S)
    assert made.hosted() == {0: RUNNING}


def test_each_process_learns_once_that_the_inputs_have_ended() -> None:
    """Those that run at once, those that start when they do, and those that come later from their start on."""
    made = machine(0, 1)
    made.assign(0, 1, 2)
    made.run(STEP_S)
    made.drain()
    made.drain()
    made.assign(0, 1, 2, 3)
    made.run(SOON_S)
    made.crashes = crashing(exit_with(1), 1)
    made.run(SOON_S)
    assert {process.knows_end for process in made.workers.values()} == {True}
    assert made.hosted() == dict.fromkeys(range(4), RUNNING)


def test_a_worker_that_waits_does_not_start_while_the_machine_stops() -> None:
    """It would have to be stopped, too."""
    made = machine(0, 1)
    made.works = False
    made.crashes = lambda number, _: exit_with(1) if number == 0 else None
    while made.core.workers[0].state is not ProcessState.WAITING:
        made.run(STEP_S)
    spawns = made.spawns[0]
    made.stop()
    made.run(SOON_S)
    assert (made.spawns[0], made.core.failures) == (spawns, [])


def test_a_second_kill_changes_nothing() -> None:
    """The end of the first one has not been seen yet."""
    made = machine(0)
    made.kill(0)
    assert made.core.kill(0) == []
    made.assign(0)
    made.run(SOON_S)
    assert (made.spawns[0], made.hosted()) == (2, {0: RUNNING})
    made.works = False
    made.crashes = crashing(exit_with(1), 3)
    while made.core.workers[0].running:
        made.run(STEP_S)
    assert made.core.kill(0) == []  # there is none


def test_a_state_that_cannot_follow_is_refused() -> None:
    """A process that does not run does not begin to report."""
    with pytest.raises(AssertionError, match="worker 3: a worker process does not go from ABSENT to RUNNING"):
        SupervisedWorker(3).become(ProcessState.RUNNING)
    with pytest.raises(AssertionError, match="the standby of partition 3: a standby process does not go from WAITING"):
        SupervisedStandby(3).become(ProcessState.RUNNING)


def test_a_worker_that_freezes_before_its_first_report_is_found() -> None:
    """It has more time than one that has begun to report: it imports, and opens its stores."""
    made = Machine()
    made.assign(0)
    made.run(STEP_S)
    made.workers[0].frozen = True
    made.run(POLICY.silent_s_max + 1.0)
    assert made.spawns[0] == 1
    made.run(POLICY.silent_start_s_max)
    assert (made.spawns[0], made.hosted()) == (2, {0: RUNNING})


def test_a_partition_that_moves_waits_for_its_store() -> None:
    """P1, P7: one worker lets go, then the other starts with it. To all others it starts; the rest go on."""
    made = machine(0, 1, 2, 3, processes=2)
    made.share(4)
    made.run(STEP_S)
    assert made.hosted() == {0: RUNNING, 1: RUNNING, 2: STARTING, 3: STARTING}
    made.run(SOON_S)
    assert made.hosted() == dict.fromkeys(range(4), RUNNING)
    assert made.spawns == {0: 1, 1: 1, 2: 1, 3: 1}
    made.share(1)
    made.run(SOON_S)
    assert made.hosted() == dict.fromkeys(range(4), RUNNING)
    assert {*made.workers} == {0}
    assert (made.spawns, made.told) == ({0: 1, 1: 1, 2: 1, 3: 1}, [])


def test_a_worker_that_dies_while_it_lets_go_leaves_the_partition_to_the_other() -> None:
    """The dead have no store open: both start."""
    made = machine(0, 1, processes=1)
    made.share(2)
    made.run(STEP_S)
    made.workers[0].end = KILLED
    made.workers[0].open.clear()
    made.run(SOON_S)
    assert made.hosted() == {0: RUNNING, 1: RUNNING}
    assert made.spawns == {0: 2, 1: 1}


def test_workers_are_shared_out_when_all_run() -> None:
    """One that starts may open what its first order says. A partition that goes meanwhile moves nowhere."""
    made = Machine(processes=1)
    made.assign(0, 1)
    made.share(2)
    made.run(STEP_S)
    assert made.core.sharing.moving == set()
    made.run(2 * SOON_S)
    assert made.hosted() == {0: RUNNING, 1: RUNNING}
    assert made.spawns == {0: 1, 1: 1}
    made.share(1)
    made.run(STEP_S)
    made.assign(0)
    made.run(SOON_S)
    assert made.hosted() == {0: RUNNING}
