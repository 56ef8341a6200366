"""State between changelog and store: data messages out of the overlay (A7, K2), segments into the store (R1)."""

import zlib
from collections.abc import Iterator
from itertools import groupby, islice

from framework.core.damage import unreadable
from framework.errors import Halted
from framework.execution.limits import MESSAGE_BYTES_MAX, REWRITE_IDLE_BYTES, REWRITE_SHARE
from framework.logs.partition_reader import rows_left
from framework.ports import LogReader, StateStore
from framework.stores.overlay import Overlay
from framework.stores.rewrite_slice import row_bytes
from protocol.changelog import (
    ChangelogHeader,
    ChangelogType,
    decode_changelog_header,
    decode_data,
    decode_outcome,
    encode_data,
)
from protocol.errors import DecodeError
from protocol.ids import TopicPartition

_CLEAR_KEYS = 10_000  # deleted at once
_READ_BYTES = 4 << 20  # at once: some data messages


class RewriteBudget:
    """What a task may rewrite: about as many bytes as it appends (K2). In memory: a restart begins with none.

    A round ends when the state was rewritten once, so what two rounds hold is at most four times the state. Twice the
    rewrite would make it three times and cost a tenth of a busy worker (measured). Nothing is rewritten that is not
    paid for, so an idle task does not write its state again and again; a row that is larger than what is left is an
    advance on what comes.
    """

    def __init__(self) -> None:
        self._bytes = 0.0

    def appended(self, size: int) -> None:
        """Add what is appended: changed rows, and messages that no rewrite repeats, as commits."""
        self._bytes += REWRITE_SHARE * size

    def of_slice(self, *, changed: bool) -> float:
        """Return how many bytes a checkpoint may rewrite; commits alone add up until a slice is worth its message."""
        return self._bytes if changed or self._bytes >= REWRITE_IDLE_BYTES else 0.0

    def rewritten(self, size: int, *, round_done: bool) -> None:
        """Take off what was rewritten. Of what a round leaves, only a little pays for the next one."""
        self._bytes -= size
        if round_done:
            self._bytes = min(self._bytes, REWRITE_IDLE_BYTES)


class Encoded:
    """The data messages of one checkpoint: count, digest and the rewrite's progress after them."""

    def __init__(self, overlay: Overlay, generation: int, first_seq: int, cursor: bytes, budget: RewriteBudget) -> None:
        dirty = list(overlay.frozen_items())
        budget.appended(sum(row_bytes(key, value) for _, key, value in dirty))
        rewritten, self.cursor, self.round_done = overlay.rewrite(cursor, budget.of_slice(changed=bool(dirty)))
        budget.rewritten(sum(row_bytes(key, value) for _, key, value in rewritten), round_done=self.round_done)
        self.messages = list(self._encode([*dirty, *rewritten], generation, first_seq))
        self.digest = 0
        for message in self.messages:
            self.digest = zlib.crc32(message, self.digest)

    @staticmethod
    def _encode(items: list[tuple[int, bytes, bytes | None]], generation: int, seq: int) -> Iterator[bytes]:
        start = size = 0
        for index, (_, key, value) in enumerate(items, 1):
            size += len(key) + len(value or b"")
            if size >= MESSAGE_BYTES_MAX or index == len(items):
                stores, keys, values = zip(*items[start:index], strict=True)
                yield encode_data(ChangelogHeader(ChangelogType.DATA, generation, seq, 0), stores, keys, values)
                start, size, seq = index, 0, seq + 1


def apply_segment(name: str, store: StateStore, message: bytes) -> int:
    """Write one data message to the store; return its number of records. Raises Halted on a damaged message."""
    try:
        data = decode_data(message)
    except DecodeError as error:
        raise Halted(f"{name}: {unreadable(error)}") from error
    for reset in data.reset_stores or ():
        _clear(store, reset)
    if data.stores and data.stores.count(data.stores[0]) == len(data.stores):
        store.load(data.stores[0], data.keys, data.values)
        return len(data.stores)
    start = 0
    for store_id, run in groupby(data.stores):
        end = start + sum(1 for _ in run)
        store.load(store_id, data.keys[start:end], data.values[start:end])
        start = end
    return start


def _clear(store: StateStore, store_id: int) -> None:
    """Empty one store: a reset of the changelog."""
    start = b""
    while keys := [key for key, _ in islice(store.scan(store_id, start, None), _CLEAR_KEYS)]:
        store.load(store_id, keys, [None] * len(keys))
        start = keys[-1] + b"\0"  # what was just deleted is not passed again


def find_outcome(log: LogReader, outcome_changelog: TopicPartition, bulk_write_id: str) -> bool | None:
    """Return the first valid outcome (C2) of a bulk write in the changelog of task (0, 0), None if there is none (1.8).

    Raises Halted if the changelog is damaged.
    """
    top = 0
    for offset, _, _, _, value, _ in rows_left(log, outcome_changelog, *log.bounds(outcome_changelog)):
        try:
            kind, generation, _, _ = decode_changelog_header(value or b"")
            if kind is ChangelogType.OUTCOME and generation >= top:
                outcome = decode_outcome(value or b"")
                if outcome.bulk_write_id == bulk_write_id:
                    return outcome.counts
        except DecodeError as error:
            raise Halted(
                f"{outcome_changelog} offset {offset}: {unreadable(error)}",
                partition=outcome_changelog,
                offset=offset,
            ) from error
        top = max(top, generation)
    return None
