"""The standbys of a machine on virtual time: when one starts, lets go of its store, and is killed."""

from grete.core.supervision.assignment import HostedState
from grete.core.supervision.process_end import ExitKind, ProcessExit
from tests.core.supervision.machines import SOON_S
from tests.core.supervision.world import POLICY, STEP_S, Machine, exit_with

STARTING, RUNNING, STOPPING = HostedState.STARTING, HostedState.RUNNING, HostedState.STOPPING
ABORT = ProcessExit(ExitKind.ABORTED, -6, "aborted by SIGABRT", None, None, "w.log", disk_full=False, at_ms=0)


def test_a_standby_hands_its_store_to_the_worker() -> None:
    """One that has caught up lets go at once; its process becomes the worker's."""
    made = Machine()
    made.assign(0, standby=[1])
    made.run(SOON_S)
    assert made.hosted() == {0: RUNNING, 1: HostedState.STANDBY}
    made.assign(0, 1)
    assert made.hosted() == {0: RUNNING, 1: STARTING}
    assert made.core.standbys.ending
    made.run(3.0)
    assert (made.hosted(), made.standbys) == ({0: RUNNING, 1: RUNNING}, {})
    made.assign(0, standby=[1])
    made.run(SOON_S)
    assert (made.hosted(), made.told) == ({0: RUNNING, 1: HostedState.STANDBY}, [])
    made.stop()


def test_a_worker_waits_for_a_standby_that_restores() -> None:
    """In its place it would restore all again."""
    made = Machine()
    made.assign(standby=[0])
    made.run(1.0)
    made.assign(0)
    made.run(1.0)
    assert (made.spawns[0], made.hosted()) == (0, {0: STARTING})
    made.run(SOON_S)
    assert made.hosted() == {0: RUNNING}


def test_a_standby_that_does_not_end_is_killed() -> None:
    """A frozen one keeps no partition from its worker."""
    made = Machine()
    made.assign(standby=[0])
    made.run(SOON_S)
    made.standbys[0].frozen = True
    made.assign(0)
    made.run(POLICY.standby_stop_s + SOON_S)
    assert (made.hosted(), made.told) == ({0: RUNNING}, [])


def test_a_standby_that_crashes_stops_no_machine() -> None:
    """It is started again with growing waits, and told in short if the same happens again."""
    made = Machine()
    made.assign(0, standby=[1])
    for _ in range(3):
        made.run(1.0)
        made.standbys[1].end = exit_with(1)
        made.standbys[1].open.clear()
        made.run(STEP_S)
    assert made.told == [
        "the standby of partition 1 has ended, code 1: it broke (log: w.log); restart in 0.0 s",
        "the standby of partition 1 has ended, as the last time; restart in 0.1 s",
        "the standby of partition 1 has ended, as the last time; restart in 0.2 s",
    ]
    made.run(SOON_S)
    assert made.hosted() == {0: RUNNING, 1: HostedState.STANDBY}


def test_a_standby_that_crashes_while_a_worker_waits_for_its_restore_lets_that_start() -> None:
    """The partition is to be active, and its standby may first end its restore: dead, it holds nothing back."""
    made = Machine()
    made.assign(standby=[1])
    made.run(1.0)
    made.assign(0, 1)
    made.standbys[1].end = exit_with(1)
    made.standbys[1].open.clear()
    made.run(SOON_S)
    assert made.hosted() == {0: RUNNING, 1: RUNNING}


def test_a_standby_whose_worker_is_to_come_is_told_once() -> None:
    """It opens ahead what the worker needs, while another machine still runs the partition."""
    made = Machine()
    made.assign(standby=[0, 1], coming=[0])
    made.run(SOON_S)
    assert [made.standbys[partition].knows_end for partition in (0, 1)] == [True, False]
    assert made.core.standbys.by_partition[0].checkpoint_id == -1
    made.standbys[0].knows_end = False
    made.assign(standby=[0, 1])
    made.run(SOON_S)
    made.assign(standby=[0, 1], coming=[0])
    made.run(SOON_S)
    assert made.standbys[0].knows_end


def test_a_standby_in_trouble_is_told_once_and_keeps_no_worker() -> None:
    """Its store is damaged: the worker that takes its place finds out why, and restores."""
    made = Machine()
    made.assign(standby=[0])
    made.run(1.0)
    made.standbys[0].trouble = "damaged"
    made.run(1.0)
    assert made.told == ["the standby of count-0 has stopped, and its worker goes on: damaged"]
    made.assign(0)
    made.run(3.0)
    assert made.hosted() == {0: RUNNING}


def test_a_standby_that_waits_for_its_start_is_forgotten() -> None:
    """Its partition is assigned elsewhere while it waits."""
    made = Machine()
    made.assign(standby=[0])
    made.run(SOON_S)
    for _ in range(3):
        made.standbys[0].end = exit_with(1)
        made.standbys[0].open.clear()
        while 0 not in made.standbys or made.standbys[0].end is not None:
            made.run(STEP_S)
    made.standbys[0].end = exit_with(1)
    made.standbys[0].open.clear()
    made.run(STEP_S)
    made.assign()
    assert (made.hosted(), made.core.standbys.by_partition) == ({}, {})


def test_a_standby_that_reads_nothing_keeps_no_worker() -> None:
    """Its restore stands still: a worker may find out why."""
    made = Machine()
    made.assign(standby=[0])
    made.run(1.0)
    made.restoring = False
    made.run(POLICY.standby_still_s + 1.0)
    made.assign(0)
    made.run(3.0)
    assert made.hosted() == {0: RUNNING}


def test_a_standby_that_crashes_waits_longer_and_longer() -> None:
    """It takes no core from the workers."""
    made = Machine()
    made.assign(standby=[0])
    starts = 0
    for _ in range(100):
        made.run(STEP_S)
        if 0 in made.standbys and made.standbys[0].end is None:
            starts += 1
            made.standbys[0].end = exit_with(1)
            made.standbys[0].open.clear()
    assert 10 < starts < 20  # of a back-off with a bound of a second, in ten seconds
