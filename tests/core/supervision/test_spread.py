"""The partitions of a machine are spread over its processes."""

import pytest

from grete.core.supervision.assignment import check_processes, was_fenced
from grete.core.supervision.sharing import spread, surplus
from grete.errors import ConfigError


def test_partitions_are_spread_over_the_processes() -> None:
    """Each partition has one worker, each worker a partition, and neighbours have different workers."""
    assert spread({}, range(3)) == {0: (0,), 1: (1,), 2: (2,)}
    assert spread({}, range(5), 2) == {0: (0, 2, 4), 1: (1, 3)}
    assert spread({}, range(4), 1) == {0: (0, 1, 2, 3)}
    check_processes(3, None)
    for processes in (0, -1, 4):
        with pytest.raises(ConfigError, match=f"--processes {processes}: the job has 3 partitions, so write 1 to 3"):
            check_processes(3, processes)


def test_each_lets_go_of_what_is_more_than_its_share() -> None:
    """As few move as can: those of workers that are to go, and what a worker has beyond its even share."""
    assert surplus({0: (0, 2, 4), 1: (1, 3)}, 2) == set()
    assert surplus({0: (0, 2, 4), 1: (1, 3)}, 3) == {4}
    assert surplus({0: (0, 2, 4), 1: (1, 3)}, 5) == {2, 3, 4}
    assert surplus({0: (0, 3), 1: (1,), 2: (2,)}, 1) == {1, 2}
    assert surplus({0: (0,), 3: (1, 2)}, 2) == {1, 2}


def test_who_was_fenced_is_named() -> None:
    """A worker of several partitions has lost one of them."""
    assert was_fenced({0: (0,), 1: (1,)}, [1, 0]).startswith(
        "worker 0 and worker 1 were fenced: another process has taken its partition; look for a second supervisor"
    )
    assert was_fenced({0: (0, 2)}, [0]).startswith("worker 0 was fenced: another process has taken a partition of it;")
