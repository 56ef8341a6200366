"""State between changelog and store: data messages out of the overlay (A7, K2), segments into the store (R1)."""

import zlib
from collections.abc import Sequence
from itertools import groupby, islice

from grete.core.actions import WriteData
from grete.core.changelog.damage import message, unreadable
from grete.core.events import DataWritten
from grete.errors import Halted
from grete.execution.limits import DELETE_SHARE, MESSAGE_BYTES_MAX, REWRITE_IDLE_BYTES, REWRITE_SHARE, SLICE_KEYS
from grete.halts import HaltCode
from grete.logs.partition_reader import rows_left
from grete.ports import LogReader, StateStore, Write
from grete.protocol.changelog import (
    REWRITTEN,
    ChangelogHeader,
    ChangelogType,
    decode_changelog_header,
    decode_data,
    decode_outcome,
    encode_data,
)
from grete.protocol.changelog_position import ChangelogPosition, encode_changelog_position
from grete.protocol.errors import DecodeError
from grete.protocol.ids import TopicPartition
from grete.stores.overlay.overlay import Overlay
from grete.stores.overlay.rewrite_slice import BEGUN, ROW_BYTES, row_bytes

_CLEAR_KEYS = 10_000  # deleted at once
_READ_BYTES = 4 << 20  # at once: some data messages


class RewriteBudget:
    """The budget of the changelog rewrite: about as many bytes as the task appends (K2). A restart begins with none.

    A round ends when the state was rewritten once, so what two rounds hold is at most four times the state. Twice the
    rewrite would make it three times and cost a tenth of a busy worker (measured). Nothing is rewritten that is not
    paid for, so an idle task does not write its state again and again; a row that is larger than what is left is an
    advance on what comes.

    Deletes of what has expired are paid for apart: each key is deleted once, while a round of what is alive must not
    wait for them. Little of this is kept for later, for the deletes of a checkpoint are in memory until it is applied.
    """

    def __init__(self) -> None:
        self._bytes = 0.0
        self.deletes = 0.0  # bytes of deletes that may still be written

    def appended(self, size: int) -> None:
        """Add what is appended: changed rows, and messages that no rewrite repeats, as commits."""
        self._bytes += REWRITE_SHARE * size
        self.deletes += DELETE_SHARE * size

    def of_slice(self, *, changed: bool) -> float:
        """Return the bytes that a checkpoint may rewrite; commits alone add up until a slice is worth its message."""
        paid = self._bytes if changed or self._bytes >= REWRITE_IDLE_BYTES else 0.0
        return paid if self.deletes > 0 else 0.0

    def rewritten(self, entries: Sequence[Write], *, round_done: bool) -> None:
        """Take off what was rewritten. Of what a round leaves, only a little pays for the next one."""
        self._bytes -= sum(row_bytes(key, value) for _, key, value in entries if value is not None)
        self.deletes -= sum(row_bytes(key, value) for _, key, value in entries if value is None)
        if round_done:
            self._bytes = min(self._bytes, REWRITE_IDLE_BYTES)

    def checkpoint_ended(self) -> None:
        """Keep of what was not used for deletes only a little."""
        self.deletes = min(self.deletes, MESSAGE_BYTES_MAX)


class DataSlices:
    """The data of a task's checkpoints on its way to the changelog: one message a call, so no call takes long.

    What has changed comes first, then what is rewritten, in messages of their own that say so (0068).
    """

    def __init__(self, overlay: Overlay, budget: RewriteBudget) -> None:
        self._overlay = overlay
        self._budget = budget
        self._rest: list[Write] = []  # frozen writes that the last message had no room for
        self._begin()

    def _begin(self) -> None:
        self._digest = 0
        self._changed = False  # this checkpoint has changes
        self._moved = self._marked = False  # the rewrite has passed keys; a message of it says so
        self._rewrites = False  # it rewrites: changes have paid for it, or commits
        self._round_done = False

    def next(self, action: WriteData) -> tuple[bytes | None, DataWritten]:
        """Return the next message, None if there is nothing to send, and the answer to the core.

        The answer's ``more`` is false once all that is frozen was sent, and what is rewritten behind it.
        """
        changed = self._rest or self._overlay.next_frozen(SLICE_KEYS)
        if changed:
            message: bytes | None = self._data(action, self._changes(changed), None)
            cursor = action.cursor if self._round_done else action.cursor or BEGUN
            more = bool(self._rest or self._overlay.frozen.unsent_count) or self._budget.of_slice(changed=True) > 0
        else:
            entries, cursor, more = self._rewrite(action.cursor)
            self._moved |= self._round_done or cursor != (action.cursor or BEGUN)
            marked = bool(entries) or (self._changed and self._moved and not self._marked)
            self._marked |= marked
            message = self._data(action, entries, REWRITTEN) if marked else None
        answer = DataWritten(int(message is not None), self._digest, cursor, self._round_done, more)
        if self._overlay.frozen.whole and not more:
            assert not self._rest, f"the data of a checkpoint ends before {len(self._rest)} of its changes"
            self._begin()
            self._budget.checkpoint_ended()
        return message, answer

    def _changes(self, writes: list[Write]) -> list[Write]:
        """Return as many frozen writes as a message has room for; the others come next."""
        size = count = 0
        for _, key, value in writes:
            size += len(key) + len(value or b"")
            count += 1
            if size >= MESSAGE_BYTES_MAX:
                break
        self._rest, self._changed = writes[count:], True
        self._budget.appended(size + ROW_BYTES * count)
        return writes[:count]

    def _data(self, action: WriteData, writes: Sequence[Write], resets: Sequence[int] | None) -> bytes:
        stores, keys, values = zip(*writes, strict=True) if writes else ((), (), ())
        header = ChangelogHeader(ChangelogType.DATA, action.generation, action.first_seq, 0)
        message = encode_data(header, stores, keys, values, resets)
        self._digest = zlib.crc32(message, self._digest)
        return message

    def _rewrite(self, cursor: bytes) -> tuple[Sequence[Write], bytes, bool]:
        """Return (entries to rewrite, next cursor, whether there are more to come)."""
        if self._round_done:
            return (), cursor, False
        left = self._budget.of_slice(changed=self._changed or self._rewrites)
        deletes_max = min(self._budget.deletes, MESSAGE_BYTES_MAX)
        entries, cursor, done = self._overlay.rewrite(cursor, min(left, MESSAGE_BYTES_MAX), SLICE_KEYS, deletes_max)
        self._budget.rewritten(entries, round_done=done)
        self._rewrites, self._round_done = self._rewrites or left > 0, done
        return entries, cursor, not done and left > 0 and self._budget.of_slice(changed=True) > 0


def apply_segment(name: str, store: StateStore, message: bytes) -> int:
    """Write one data message to the store; return its number of records. Raises Halted on a damaged message."""
    try:
        data = decode_data(message)
    except DecodeError as error:
        raise Halted(f"{name}: {unreadable(error)}", code=HaltCode.CHANGELOG_DAMAGED) from error
    for reset in data.reset_stores or ():
        _clear(store, reset)
    if data.stores and data.stores.count(data.stores[0]) == len(data.stores):
        store.load(data.stores[0], data.keys, data.values)
        return len(data.stores)
    start = 0
    for store_id, same in groupby(data.stores):
        end = start + sum(1 for _ in same)
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
    for row in rows_left(log, outcome_changelog, *log.bounds(outcome_changelog)):
        with message(outcome_changelog, row.offset):
            kind, generation, _, _ = decode_changelog_header(row.value or b"")
            if kind is ChangelogType.OUTCOME and generation >= top:
                outcome = decode_outcome(row.value or b"")
                if outcome.bulk_write_id == bulk_write_id:
                    return outcome.counts
        top = max(top, generation)
    return None


class CheckpointWrites:
    """The frozen write batch of a task on its way: slices to the changelog, then chunks to the store.

    ``had_turn``: the last step was one of these; input has the next one (A8).
    """

    def __init__(self, overlay: Overlay) -> None:
        self._overlay, self._budget = overlay, RewriteBudget()
        self.slices = DataSlices(overlay, self._budget)
        self._position: bytes | None = None  # of the changelog, once what is frozen is committed
        self.had_turn = False

    @property
    def applying(self) -> bool:
        """Whether the write batch is committed, and the store lacks a part of it."""
        return self._position is not None

    def appended(self, size: int) -> None:
        """Note that the task has appended as many bytes: they pay for a rewrite (K2)."""
        self._budget.appended(size)

    def next_slice(self, action: WriteData) -> tuple[bytes | None, DataWritten]:
        """Return the next message, None if there is nothing to send, and the answer to the core."""
        assert self._position is None, "data is sent while the checkpoint before it is applied"
        self.had_turn = True
        return self.slices.next(action)

    def committed(self, position: ChangelogPosition) -> None:
        """Note that they are committed, up to this position: they may be applied."""
        assert self._position is None, "a write batch is applied before the one before it"
        self._position = encode_changelog_position(position)

    def apply_chunk(self) -> bool:
        """Write a part of them to the store; return whether it was the last one."""
        assert self._position is not None, "nothing is committed that could be applied"
        self.had_turn = True
        if not self._overlay.apply_chunk(self._position):
            return False
        self._position = None
        return True
