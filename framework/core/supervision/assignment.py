"""The partitions of a machine: which it is to host, in which of its processes, and what has become of each."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

from grete.errors import ConfigError


class Assignment(msgspec.Struct, frozen=True):
    """The partitions of one machine: it runs the tasks of the ``active`` ones, and keeps ``standby`` ones ready.

    ``coming``: those of the latter that are to be active soon.
    """

    active: frozenset[int] = frozenset()
    standby: frozenset[int] = frozenset()
    coming: frozenset[int] = frozenset()


class HostedShare(NamedTuple):
    """The part of a job that a machine hosts, and in how many processes.

    ``processes``: how many workers share the partitions, None: one for each. ``assignment``: None: all partitions, for
    as long as it runs; else what is hosted until the next assignment, beside other machines.
    """

    processes: int | None = None
    assignment: Assignment | None = None


class HostedState(StrEnum):
    """The state of a partition on this machine, which hosts it or has hosted it last."""

    STARTING = "starting"  # also: restoring, or its worker waits for its next start
    RUNNING = "running"  # all tasks take input
    STOPPING = "stopping"  # it was taken away, and commits
    STORED = "stored"  # it was taken away, and has committed: another process may run it, and this one lets go
    STANDBY = "standby"
    FENCED = "fenced"  # another process has taken it; it does not start again here by itself
    HALTED = "halted"  # a person must look; so must they if it was given up after too many crashes


def check_processes(partitions: int, processes: int | None) -> None:
    """Raise ConfigError if this many processes would leave one without a partition, or are none; None: one for each."""
    if processes is not None and not 1 <= processes <= partitions:
        raise ConfigError(
            f"--processes {processes}: the job has {partitions} partitions, so write 1 to {partitions}: a partition is "
            "never divided"
        )


def was_fenced(workers: Mapping[int, tuple[int, ...]], numbers: Iterable[int]) -> str:
    """Return that these of all ``workers`` were fenced, in words."""
    fenced = sorted(numbers)
    who = " and ".join(f"worker {number}" for number in fenced)
    several = any(len(workers[number]) > 1 for number in fenced)
    return (
        f"{who} {'was' if len(fenced) == 1 else 'were'} fenced: another process has taken "
        f"{'a partition of it' if several else 'its partition'}; look for a second supervisor or worker on this job"
    )
