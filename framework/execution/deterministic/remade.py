"""Outputs to topics outside of the job: numbered, digested, and compared when they are made again (D5).

After a restart a sink makes outputs again that are visible already. They are dropped by their seq, so nothing but their
digest can tell that the task has made others this time. In transactions, each output release holds the digest up to its
last seq. Recovered outputs are compared one by one.
"""

from array import array
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct

from grete.errors import Halted
from grete.execution.deterministic.numbering import content_of
from grete.execution.limits import REMADE_CHECKS_MAX, REMADE_KEPT
from grete.halts import HaltCode
from grete.ports import ExternalRecord
from grete.protocol.frames import digest_outputs
from grete.protocol.ids import TopicPartition

Check = tuple[int, int]  # a seq, and the digest up to it
_NUMBER = Struct(">q")
_CHECK = Struct(">qI")


class OutputsDiffer(Halted):
    """The outputs ``first`` to ``last`` (seqs) of a partition are visible, and the task has made others this time.

    ``made``: the last of them, as made now. ``offset``: that of the visible one, if it is known.
    """

    def __init__(
        self, partition: TopicPartition, first: int, last: int, made: Sequence[ExternalRecord], offset: int | None
    ) -> None:
        super().__init__(
            f"outputs {first} to {last} in {partition} are visible, and others were made again",
            partition=partition,
            offset=offset,
            code=HaltCode.NOT_DETERMINISTIC,
        )
        self.differing = partition
        self.first = first
        self.last = last
        self.made = tuple(made)


class Recovered:
    """The recovered records of a task in one partition: digest and offset of each, from seq ``first`` on.

    Timestamps are not compared: a topic may replace them by its own.
    """

    def __init__(self) -> None:
        self.first = 0
        self._digests = array("I")
        self._offsets = array("q")

    @property
    def last(self) -> int:
        """The highest seq; below ``first`` if there is none."""
        return self.first + len(self._digests) - 1

    def add(self, seq: int, offset: int, key: bytes | None, value: bytes | None, cell: bytes) -> None:
        """Take the next record that was read. A repeated one is known; behind a gap only those that follow are kept."""
        if self._digests and seq <= self.last:
            return
        if not self._digests or seq > self.last + 1:
            self.first, self._digests, self._offsets = seq, array("I"), array("q")
        self._digests.append(_digest(key, value, cell))
        self._offsets.append(offset)

    def differs(self, seq: int, record: ExternalRecord) -> bool:
        """Tell whether the visible record of a seq is known and another one."""
        if not self.first <= seq <= self.last:
            return False
        return _digest(record.key, record.value, record.headers or b"") != self._digests[seq - self.first]

    def offset(self, seq: int) -> int:
        """Return the offset of the record of a seq."""
        return self._offsets[seq - self.first]


def _digest(key: bytes | None, value: bytes | None, cell: bytes) -> int:
    return digest_outputs(0, [key], [value], [0], [content_of(cell)])


@dataclass(slots=True)
class RemadePartition:
    """A task's records for one partition: ``digest`` of those up to ``seq``; those up to ``released`` are visible."""

    partition: TopicPartition
    seq: int = 0
    digest: int = 0
    released: int = 0
    visible: Recovered | None = None
    checks: deque[Check] = field(default_factory=deque)
    _remade: deque[ExternalRecord] = field(default_factory=lambda: deque(maxlen=REMADE_KEPT))
    _compared: int = 0  # up to this seq what was made again is what is visible

    @property
    def is_remaking(self) -> bool:
        """Whether something visible is still to be made again."""
        return self.seq < self.released

    def expect(self, checks: Iterable[Check]) -> None:
        """Take digests of output releases; those of seqs that are passed are of no use."""
        known = {*self.checks, *(check for check in checks if check[0] > self.seq)}
        self.checks, self._compared = deque(sorted(known)), self.seq

    def add(self, records: Sequence[ExternalRecord]) -> int:
        """Take the next records; return how many of them are visible already. Raises OutputsDiffer."""
        before = self.seq
        if self.checks or self.is_remaking:
            self._compare(records)
        else:
            self._count(records)
        assert not self.checks or self.checks[0][0] > self.seq, f"{self.partition}: {self.checks[0]} is not compared"
        return min(len(records), max(0, self.released - before))

    def _compare(self, records: Sequence[ExternalRecord]) -> None:
        if self.visible is not None:
            for seq, record in enumerate(records, self.seq + 1):
                if self.visible.differs(seq, record):
                    raise OutputsDiffer(self.partition, seq, seq, [record], self.visible.offset(seq))
            if self.seq + len(records) >= self.visible.last:
                self.visible = None
        start = 0
        while self.checks and self.checks[0][0] - self.seq <= len(records) - start:
            seq, digest = self.checks.popleft()
            stop = start + seq - self.seq
            self._remade.extend(records[start:stop])
            self._count(records[start:stop])
            if self.digest != digest:
                raise OutputsDiffer(self.partition, self._compared + 1, seq, self._remade, None)
            self._remade.clear()
            self._compared, start = seq, stop
        if self.checks:
            self._remade.extend(records[start:])
        self._count(records[start:])

    def _count(self, records: Sequence[ExternalRecord]) -> None:
        if records:
            _, keys, values, timestamps, cells = zip(*records, strict=True)
            self.digest = digest_outputs(self.digest, keys, values, timestamps, cells)
            self.seq += len(records)


def count(
    records: list[ExternalRecord], made: Mapping[TopicPartition, RemadePartition]
) -> tuple[list[ExternalRecord], dict[TopicPartition, Check]]:
    """Return the records that are not visible yet, in order; and the last seq and digest of each partition among them.

    Raises OutputsDiffer.
    """
    groups: defaultdict[TopicPartition, list[ExternalRecord]] = defaultdict(list)
    for record in records:
        groups[record[0]].append(record)
    known = {partition: made[partition].add(group) for partition, group in groups.items()}
    last = {p: (made[p].seq, made[p].digest) for p, group in groups.items() if known[p] < len(group)}
    return _behind(records, known) if any(known.values()) else records, last


def _behind(records: list[ExternalRecord], known: dict[TopicPartition, int]) -> list[ExternalRecord]:
    """Return the records but for the first ``known`` of each partition."""
    left = []
    for record in records:
        if known[record[0]]:
            known[record[0]] -= 1
        else:
            left.append(record)
    return left


def pack_released(seq: int, checks: Iterable[Check]) -> bytes:
    """Return the state's entry of a partition: how far it is visible, and the digests still to be compared."""
    pending = list(checks)
    if len(pending) > REMADE_CHECKS_MAX:  # fewer of them name a longer range
        pending = [*pending[: -1 : 1 + len(pending) // REMADE_CHECKS_MAX], pending[-1]]
    assert len(pending) <= REMADE_CHECKS_MAX + 1, f"{len(pending)} digests go into one commit"
    return _NUMBER.pack(seq) + b"".join(_CHECK.pack(*check) for check in pending)


def unpack_released(raw: bytes) -> tuple[int, list[Check]]:
    """Undo ``pack_released``."""
    return _NUMBER.unpack_from(raw)[0], [(seq, digest) for seq, digest in _CHECK.iter_unpack(raw[_NUMBER.size :])]


def pack_digest(made: RemadePartition) -> bytes:
    """Return the state's entry of the digest: it says up to which seq it goes."""
    return _CHECK.pack(made.seq, made.digest)


def unpack_digest(raw: bytes | None, seq: int) -> int:
    """Return the digest up to a seq; 0 where the state has none: an earlier build wrote it, it begins there."""
    if raw is None:
        return 0
    upto, digest = _CHECK.unpack(raw)
    return int(digest) if upto == seq else 0
