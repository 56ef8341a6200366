"""Outputs in the outbox of one task: those of the open checkpoint, by the block, and those of closed ones, in order."""

import struct
from collections import Counter, deque
from collections.abc import Callable, Iterator

import msgspec

from grete.api.sinks.sink import Entry
from grete.stores.overlay.overlay_store import OverlayStore

NUMBER = struct.Struct(">Q")  # checkpoints and block numbers: never negative
BLOCK, CLOSED = b"b", b"v"  # first byte of a key: a block by its number, or what a checkpoint holds
_BLOCK_BYTES = 256 * 1024  # about; one step of an application
_HELD_BYTES = 100  # of an entry, beyond its value


class ClosedOutputs(msgspec.Struct, array_like=True):
    """The contents of a checkpoint: blocks first <= number < end, and the targets that the indexes in them mean."""

    checkpoint_id: int
    first: int
    end: int
    size: int
    targets: list[str]


class OpenOutputs:
    """Outputs since the last checkpoint was closed. ``size``: their bytes. ``targets``: the sinks' names, by index."""

    def __init__(self, store: OverlayStore) -> None:
        self.size = 0
        self.targets: list[str] = []
        self._store = store
        self._block: list[tuple[int, bytes]] = []  # the one to come: (index of the target, value)
        self._block_bytes = 0
        self._first = self._next = 0  # block numbers
        self._mark = (0, 0, 0, 0, self._block)

    def begin(self, number: int) -> None:
        """Begin with no outputs, and this number for the next block."""
        self._first = self._next = number
        self.targets, self._block, self._block_bytes, self.size = [], [], 0, 0

    def sender(
        self, target: str, encode: Callable[[object], bytes], attribute: str, sent_to: Counter[str]
    ) -> Callable[..., None]:
        """Return the function that takes an output for a target, and counts it for the attribute of the task."""
        index = len(self.targets)
        self.targets.append(target)

        def send(_key: object, value: object, **_: object) -> None:
            raw = encode(value)
            self._block.append((index, raw))
            sent_to[attribute] += 1
            size = len(raw) + _HELD_BYTES
            self.size += size
            self._block_bytes += size
            if self._block_bytes >= _BLOCK_BYTES:
                self.seal()

        return send

    def seal(self) -> None:
        """Put the open block into the store. A new list is begun: ``mark`` may hold the old one."""
        if self._block:
            self._store.put(BLOCK + NUMBER.pack(self._next), msgspec.msgpack.encode(self._block))
            self._next += 1
            self._block, self._block_bytes = [], 0

    def close(self, checkpoint_id: int) -> ClosedOutputs | None:
        """Return the outputs of the checkpoint, None if it has none; the next one begins behind it. After ``seal``."""
        assert not self._block, "outputs would be left out of their checkpoint"
        if self._next == self._first:
            return None
        closed = ClosedOutputs(checkpoint_id, self._first, self._next, self.size, self.targets)
        self._first, self.size = self._next, 0
        return closed

    def mark(self) -> None:
        """Remember this moment for ``rollback``."""
        self._mark = self._next, self._block_bytes, self.size, len(self._block), self._block

    def rollback(self) -> None:
        """Take back the outputs since ``mark``; the blocks that were sealed since are undone by the overlay."""
        self._next, self._block_bytes, self.size, length, self._block = self._mark
        assert self._next >= self._first, "a checkpoint was closed since the mark"
        assert len(self._block) >= length, "an output before the mark is gone"
        del self._block[length:]


class PendingOutputs:
    """The closed checkpoints of one task: frozen, then committed and to be applied, then applied and to be deleted."""

    def __init__(self, store: OverlayStore) -> None:
        self.closing: ClosedOutputs | None = None  # frozen, its commit is on its way
        self.committed: deque[ClosedOutputs] = deque()
        self.committed_bytes = 0
        self._store = store
        self._applied: list[ClosedOutputs] = []  # to delete in the next checkpoint

    def reload(self) -> int:
        """Start from the restored state; return the number of the next block."""
        rows = self._store.scan(CLOSED, b"w")
        self.committed = deque(msgspec.json.decode(row, type=ClosedOutputs) for _, row in rows)
        self.committed_bytes = sum(closed.size for closed in self.committed)
        self.closing, self._applied = None, []
        return self.committed[-1].end if self.committed else 0

    def close(self, closed: ClosedOutputs) -> None:
        """Take a checkpoint that is about to be frozen."""
        assert self.closing is None, "a checkpoint was closed before the one before it was committed"
        assert not self.committed or self.committed[-1].checkpoint_id < closed.checkpoint_id, "checkpoints go back"
        assert not self.committed or self.committed[-1].end == closed.first, f"blocks before {closed.first} are lost"
        assert self.committed_bytes == sum(each.size for each in self.committed), self.committed_bytes
        self.closing = closed
        self._store.put(CLOSED + NUMBER.pack(closed.checkpoint_id), msgspec.json.encode(closed))

    def commit(self) -> None:
        """Let the checkpoint that was closed last be applied, if it holds anything."""
        if self.closing is not None:
            self.committed.append(self.closing)
            self.committed_bytes += self.closing.size
            self.closing = None

    def applied(self) -> None:
        """Take note that all sinks have the first one."""
        closed = self.committed.popleft()
        self._applied.append(closed)
        self.committed_bytes -= closed.size
        assert self.committed_bytes >= 0, "more was applied than was committed"

    def delete_applied(self) -> list[int]:
        """Delete what was applied out of the checkpoint to come; return which checkpoints that were."""
        applied, self._applied = self._applied, []
        for closed in applied:
            for number in range(closed.first, closed.end):
                self._store.delete(BLOCK + NUMBER.pack(number))
            self._store.delete(CLOSED + NUMBER.pack(closed.checkpoint_id))
        return [closed.checkpoint_id for closed in applied]

    def entries(self, closed: ClosedOutputs, names: dict[int, str]) -> Iterator[tuple[list[int], list[Entry]]]:
        """Yield a sink's entries of a checkpoint, in their order, a block at a time: a checkpoint may be large.

        With their numbers among all entries of the checkpoint.
        """
        start, end, first = NUMBER.pack(closed.first), NUMBER.pack(closed.end), 0
        for _, block in self._store.scan(BLOCK + start, BLOCK + end):
            entries = msgspec.msgpack.decode(block, type=list[tuple[int, bytes]])
            numbers = [number for number, (index, _) in enumerate(entries, first) if index in names]
            first += len(entries)
            if numbers:
                yield numbers, [(names[index], raw) for index, raw in entries if index in names]
