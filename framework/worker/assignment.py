"""Which partitions the supervisor of a machine is to host, and what has become of each."""

from enum import StrEnum

import msgspec


class Assignment(msgspec.Struct, frozen=True):
    """The partitions of one machine: it runs the tasks of the ``active`` ones, and keeps ``standby`` ones ready.

    ``coming``: those of the latter that are to be active soon.
    """

    active: frozenset[int] = frozenset()
    standby: frozenset[int] = frozenset()
    coming: frozenset[int] = frozenset()


class HostedState(StrEnum):
    """What a supervisor says of a partition that it hosts, or has hosted last."""

    STARTING = "starting"  # also: restoring, or its worker waits for its next start
    RUNNING = "running"  # all tasks take input
    STOPPING = "stopping"  # it was taken away, and commits
    STORED = "stored"  # it was taken away, and has committed: another process may run it, and this one lets go
    STANDBY = "standby"
    FENCED = "fenced"  # another process has taken it; it does not start again here by itself
    HALTED = "halted"  # a person must look; so must they if it was given up after too many crashes
