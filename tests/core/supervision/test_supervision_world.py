"""Random faults on one machine: whatever happens, at the end each partition is run once, by a process that works."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grete.core.supervision.assignment import HostedState
from tests.core.supervision.world import KILLED, POLICY, STEP_S, Machine, Process, exit_with

PARTITIONS = 4
QUIET_S = 40.0  # after the last fault: every bound of waiting is over, one after another
PATIENT = replace(POLICY, restarts_max=1 << 20)
ENDS = (KILLED, exit_with(1), exit_with(1, "log away"), exit_with(1, "hung"), exit_with(1, "disk"))

partitions = st.sets(st.integers(0, PARTITIONS - 1))
faults = st.one_of(
    st.tuples(st.just("assign"), partitions, partitions),
    st.tuples(st.sampled_from(["kill", "freeze", "deafen", "freeze standby", "crash standby"]), st.integers(0, 3)),
    st.tuples(st.just("crash"), st.integers(0, 3), st.sampled_from(ENDS)),
    st.tuples(st.sampled_from(["look seldom", "run"]), st.sampled_from([STEP_S, 0.5, 3.0, 12.0])),
    st.tuples(st.just("pause"), st.sampled_from([1.0, 30.0, 600.0])),
    st.tuples(st.just("share"), st.integers(1, PARTITIONS)),
    st.tuples(st.just("drain")),
)


def inject(made: Machine, fault: tuple[object, ...]) -> None:
    """Let a fault happen, and some time pass."""
    match fault:
        case ("assign", set() as active, set() as standby):
            made.assign(*active, standby=standby)
        case ("kill", int(number)) if number in made.core.workers:
            made.kill(number)
        case ("freeze", int(number)) if number in made.workers:
            made.workers[number].frozen = True
        case ("deafen", int(number)) if number in made.workers:
            made.workers[number].deaf = True
        case ("freeze standby", int(number)) if number in made.standbys:
            made.standbys[number].frozen = True
        case ("crash standby", int(number)) if number in made.standbys:
            crash(made.standbys[number], KILLED)
        case ("crash", int(number), end) if number in made.workers:
            crash(made.workers[number], end)
        case ("look seldom", float(seconds)):
            made.gap_s = seconds
        case ("run", float(seconds)):
            made.run(seconds)
        case ("pause", float(seconds)):
            made.pause(seconds)
        case ("share", int(processes)):
            made.share(processes)
        case ("drain",):
            made.drain()
        case _:
            pass  # that process is not there
    made.run(STEP_S)


def crash(process: Process, end: object) -> None:
    """End a process now, unless it has ended."""
    if process.end is None:
        process.end = end  # type: ignore[assignment]  # of ENDS
        process.open.clear()


plans = given(plan=st.lists(faults, max_size=30))


@pytest.mark.parametrize("processes", [None, 1, 2])
@settings(max_examples=12, derandomize=True, deadline=None)
@plans
def test_after_all_faults_each_partition_runs_once(processes: int | None, plan: list[tuple[object, ...]]) -> None:
    """Two processes never have a store open, each process is told once, and the assignment is what runs at the end."""
    require_it_settles(processes, plan)


@pytest.mark.prove
@pytest.mark.parametrize("processes", [None, 1, 2])
@settings(max_examples=250, deadline=None, derandomize=False, database=None)
@plans
def test_each_partition_runs_once_whatever_the_faults_are(
    processes: int | None, plan: list[tuple[object, ...]]
) -> None:
    """The same, with fresh faults each time."""
    require_it_settles(processes, plan)


def require_it_settles(processes: int | None, plan: list[tuple[object, ...]]) -> None:
    """Let the faults happen and end: then the assignment runs, and nothing is disturbed any more."""
    made = Machine(processes=processes, policy=PATIENT)
    for fault in plan:
        inject(made, fault)
    made.gap_s = STEP_S
    for process in made.workers.values():
        process.deaf = False
    made.assign(0, 1, standby=[2])
    made.run(QUIET_S)
    assert made.hosted() == {0: HostedState.RUNNING, 1: HostedState.RUNNING, 2: HostedState.STANDBY}
    assert made.errors == []
    spawns = made.spawns.copy()
    made.run(QUIET_S)
    assert made.spawns == spawns  # who is healthy is not disturbed
    made.stop()
    assert (made.workers, made.standbys, made.core.failures) == ({}, {}, [])
