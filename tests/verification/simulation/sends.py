"""Sends of simulated processes that the log has not applied yet."""

from collections import deque
from typing import NamedTuple, Protocol

from grete.ports import Delivery, ExternalRecord
from grete.protocol.ids import TopicPartition


class SendingProcess(Protocol):
    """A process with pending sends, as the log knows it."""

    stalled: bool  # the process is paused, and its client's thread with it
    lose_ack: bool  # the next acknowledgement gets lost
    deliveries: list[Delivery]
    lost_acks: "list[tuple[Sent, Delivery]]"

    def is_succeeded(self, owner: int, partition: TopicPartition) -> bool:
        """Whether another life of an owner's task has looked into a partition since that one did first."""
        ...


class TransactionalWriter:
    """A transactional writer of a changelog: a task's life in a process. Its identity is that of a client."""

    __slots__ = ("end", "taken_over")

    def __init__(self) -> None:
        self.end: int | None = None  # of the changelog, behind its last transaction; None: it has not claimed
        self.taken_over = False  # another has the transactional id, or it took too long


class Plain:
    """Plain records that share one delivery. Each of their partitions gets its own in its own time."""

    __slots__ = ("ends", "left", "lost", "sender")

    def __init__(self, left: int, sender: SendingProcess) -> None:
        self.left = left
        self.lost = False  # an acknowledgement was: none is reported
        self.ends: dict[TopicPartition, int] = {}
        self.sender = sender


class Sent(NamedTuple):
    """One send that is on its way."""

    token: int
    partition: TopicPartition | None  # None: a plain record
    value: bytes
    fence: int | None
    outputs: tuple[ExternalRecord, ...]
    sync: bool = False
    plain: Plain | None = None
    writer: TransactionalWriter | None = None
    takes_over: bool = False  # nothing but that: the first thing that a writer of transactions does
    owner: int = 0  # the task of the process that it is of


class Queue:
    """Sends of one process to one partition that the log has not yet applied. ``sender`` None: it is dead."""

    __slots__ = ("acks", "items", "not_before", "partition", "sender")

    def __init__(self, sender: SendingProcess | None, partition: TopicPartition) -> None:
        self.sender = sender
        self.partition = partition
        self.items: deque[Sent] = deque()
        self.not_before = 0  # time until which it stays in the network
        self.acks = True  # False: an acknowledgement was lost, so no later one is reported either
