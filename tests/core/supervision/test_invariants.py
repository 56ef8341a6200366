"""The invariants of supervision: a state that must not be is noticed."""

from collections.abc import Callable

import pytest

from grete.core.supervision.lifecycle import ProcessState
from grete.core.supervision.standbys import SupervisedStandby
from grete.core.supervision.supervision import Supervision
from tests.core.supervision.world import Machine


def _two_hosts(core: Supervision) -> None:
    core.workers[1].wanted = core.workers[0].wanted


def _no_assignment(core: Supervision) -> None:
    core.workers[0].wanted = (7,)


def _two_stores(core: Supervision) -> None:
    standby = core.standbys.by_partition[0] = SupervisedStandby(0)
    standby.state, standby.starts = ProcessState.RUNNING, 1


def _ended_without_code(core: Supervision) -> None:
    core.workers[0].state = ProcessState.ENDED


def _killed_for_nothing(core: Supervision) -> None:
    core.workers[0].state = ProcessState.KILLED


def _not_kept_ready(core: Supervision) -> None:
    core.standbys.wanted = frozenset({3})


def _waits_unwanted(core: Supervision) -> None:
    core.standbys.by_partition[3] = SupervisedStandby(3)


@pytest.mark.parametrize(
    "broken",
    [
        _two_hosts,
        _no_assignment,
        _two_stores,
        _ended_without_code,
        _killed_for_nothing,
        _not_kept_ready,
        _waits_unwanted,
    ],
)
def test_a_state_that_must_not_be_is_noticed(broken: Callable[[Supervision], None]) -> None:
    """Two workers that run hold all invariants; each of these changes breaks one."""
    machine = Machine()
    machine.assign(0, 1)
    machine.run(5)
    machine.core.check_invariants()
    broken(machine.core)
    with pytest.raises(AssertionError):
        machine.core.check_invariants()
