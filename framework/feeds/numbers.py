"""The headers by which a record that a feed or a program has written twice is recognised: session and number.

Within a session, the records of a partition are numbered from 1 without a gap, as the outputs of a deterministic job
are (grete.api.topics.reader). Who writes a record again after a crash gives it the same number.
"""

import os
from collections.abc import Collection, Mapping

import msgspec

from grete.api.topics.reader import PRODUCER, SEQ
from grete.protocol.frames import decode_headers, encode_headers

_SESSION_BYTES = 8  # drawn by chance: one in 10⁹ writers of a topic meets another's after thousands of years


def new_session() -> str:
    """Return the name of a session that no other one has."""
    return os.urandom(_SESSION_BYTES).hex()


class RecordNumbers:
    """Numbers the records of one session. ``counts``: partition → how many it has so far."""

    def __init__(self, session: str, counts: Mapping[int, int] | None = None) -> None:
        """Go on behind ``counts``."""
        self.session = session
        self.counts: dict[int, int] = dict(counts or {})

    def next(self, partition: int) -> int:
        """Return the number of the next record in a partition."""
        number = self.counts[partition] = self.counts.get(partition, 0) + 1
        return number


def cell_of(session: str, partition: int, number: int, before: bytes | None = None) -> bytes:
    """Return the headers' cell, behind those of the record's writer: ``before``, a cell.

    Sessions differ by partition, so that a task may read several of them.
    """
    own = ((PRODUCER, b"%s-%d" % (session.encode(), partition)), (SEQ, b"%d" % number))
    return encode_headers(own if before is None else (*decode_headers(before), *own))


class GivenNumber(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The number that a record has, wherever it is written: what it is, by a digest, and its place."""

    digest: bytes
    session: str
    number: int


class NumberPlan(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Metadata, written before the records: ``given`` by the record's key, until they are acknowledged."""

    session: str
    counts: dict[int, int]
    given: dict[bytes, GivenNumber]


class PlannedNumbers:
    """Numbers of a feed whose next batch is not known before: it depends on what it finds after a crash.

    So a batch is planned, the plan is written, then the batch is. A record that the plan names, and that is found as it
    was, gets the same number again. Another one leaves a gap perhaps, so another session begins.
    """

    def __init__(self, plan: bytes | None) -> None:
        """``plan``: as it was written last."""
        before = NumberPlan(new_session(), {}, {}) if plan is None else msgspec.msgpack.decode(plan, type=NumberPlan)
        self._numbers = RecordNumbers(before.session, before.counts)
        self._given = before.given

    def begin(self) -> set[bytes]:
        """Look for records to write, from the first one on. Return the keys of those that may be written already."""
        if self._given:
            self._numbers = RecordNumbers(new_session())
        return set(self._given)

    def number(self, key: bytes, digest: bytes, partition: int) -> bytes:
        """Return the headers' cell of a record, and plan it. ``digest`` is that of its value."""
        given = self._given.get(key)
        if given is None or given.digest != digest:
            given = self._given[key] = GivenNumber(digest, self._numbers.session, self._numbers.next(partition))
        return cell_of(given.session, partition, given.number)

    def plan(self, without: Collection[bytes] = ()) -> bytes:
        """Return the plan as it is to be written, ``without``: once the records of these keys are acknowledged."""
        given = {key: each for key, each in self._given.items() if key not in without}
        return msgspec.msgpack.encode(NumberPlan(self._numbers.session, self._numbers.counts, given))

    def written(self, keys: Collection[bytes]) -> None:
        """Take the records of these keys for acknowledged."""
        for key in keys:
            del self._given[key]
