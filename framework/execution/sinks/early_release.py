"""Outputs of a deterministic task on their way to files and tables, ahead of the commit of their checkpoint (D5).

The task numbers all its outputs to such sinks, from 1. They wait here until no crash can change them any more, and are
released in their order, all outputs of a logical time together. A sink keeps up to which number it has them, and the
digest there. So after a restart those that are made again are compared by their digest, and left out. What a sink
lacks when a checkpoint is closed becomes part of the checkpoint's state: no commit waits for a sink.
"""

import struct
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Sequence
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

import msgspec

from grete.api.sinks.sink import Released
from grete.protocol.frames import digest_outputs
from grete.stores.overlay.overlay_store import OverlayStore

EarlyOutput = tuple[int, str, bytes]  # logical time in µs, target, encoded value

_KEPT, _ACCOUNT = b"e", b"released"  # keys in the state: of outputs by the seq of the first one; of the account
_NUMBER = struct.Struct(">Q")
_BLOCK_BYTES = 256 * 1024  # about; of outputs in the state under one key
_RELEASE_BYTES = 1 << 20  # about; of one release
_HELD_BYTES = 100  # of an output, beyond its value
_time = itemgetter(0)


class _Account(msgspec.Struct, array_like=True):
    """The released outputs at the close of a checkpoint; ``targets``: the seq that each target has."""

    seq: int
    digest: int
    let_out_t: int
    targets: dict[str, int]


class Bundle(NamedTuple):
    """Outputs that leave together: those behind seq ``after``, up to ``upto``."""

    after: int
    upto: Released
    outputs: Sequence[EarlyOutput]


class OutputQueue:
    """Outputs in the order of their logical times: first the ``out`` ones that may leave, then those that may not yet.

    One may leave when its time is whole, and its input decisions are valid: up to ``let_out_t`` µs. ``bytes``: of those
    that may not, ``waiting_bytes``: of those that may.
    """

    def __init__(self) -> None:
        self.outputs: list[EarlyOutput] = []
        self.out = 0
        self.let_out_t = -1
        self.bytes = self.waiting_bytes = 0
        self._mark = 0, 0

    @property
    def last_t(self) -> int:
        """The logical time of the last output that may not leave yet; -1: there is none."""
        return self.outputs[-1][0] if len(self.outputs) > self.out else -1

    def append(self, output: EarlyOutput) -> None:
        """Take an output that was just made."""
        self.outputs.append(output)
        self.bytes += _size(output)

    def mark(self) -> None:
        """Remember this moment for ``rollback``."""
        self._mark = len(self.outputs), self.bytes

    def rollback(self) -> None:
        """Take back what was made since ``mark``."""
        length, self.bytes = self._mark
        del self.outputs[length:]

    def let_out(self, t: int) -> None:
        """Note that outputs up to logical time ``t`` µs may leave: no others of these times will be made."""
        out = bisect_right(self.outputs, t, self.out, key=_time)
        size = sum(map(_size, islice(self.outputs, self.out, out)))
        self.out, self.let_out_t = out, max(t, self.let_out_t)
        self.bytes -= size
        self.waiting_bytes += size
        assert self.bytes >= (len(self.outputs) - out) * _HELD_BYTES, f"{len(self.outputs) - out} in {self.bytes} bytes"
        assert self.waiting_bytes >= out * _HELD_BYTES, f"{out} outputs in {self.waiting_bytes} bytes"

    def left(self, count: int) -> None:
        """Forget the first ones."""
        assert count <= self.out, f"{count} outputs left, and {self.out} might"
        self.waiting_bytes -= sum(map(_size, self.outputs[:count]))
        del self.outputs[:count]
        self.out -= count


class EarlyReleases:
    """The outputs of one task that a sink still lacks. ``reload`` comes first."""

    def __init__(self, store: OverlayStore, now: Callable[[], int]) -> None:
        """``store``: of the outbox. ``now`` returns the logical time in µs that an output has."""
        self.generation = 0  # of the task; set before anything is released
        self.queue = OutputQueue()  # behind seq ``_seq``
        self.targets: dict[str, int] = {}  # target → the seq up to which its sink is known to have its outputs
        self.kept: dict[str, int] = {}  # the same, as the committed state has it
        self._tables: set[str] = set()  # whose databases were taken over: nothing leaves before the state knows that
        self._store = store
        self._now = now
        self._seq, self._digest = 0, 0  # up to here all sinks have all outputs
        self._kept: deque[tuple[int, int]] = deque()  # seqs of outputs in the state, by block
        self._saved: _Account | None = None  # in the state
        self._is_committed = False  # the state says that this task releases early: before, nothing may leave

    def reload(self) -> None:
        """Go on from the restored state."""
        self.queue = OutputQueue()
        self._kept.clear()
        raw = self._store.get(_ACCOUNT)
        self._saved = None if raw is None else msgspec.json.decode(raw, type=_Account)
        self._is_committed = raw is not None
        account = self._saved or _Account(0, 0, -1, {})
        self._seq, self._digest, self.targets = account.seq, account.digest, dict(account.targets)
        self.kept, self._tables = account.targets, set()
        for key, block in self._store.scan(_KEPT, b"f"):
            outputs = msgspec.msgpack.decode(block, type=list[EarlyOutput])
            first = _NUMBER.unpack(key[1:])[0]
            self._kept.append((first, first + len(outputs) - 1))
            for output in outputs[max(0, self._end + 1 - first) :]:
                self.queue.append(output)
        self.queue.let_out(account.let_out_t)

    @staticmethod
    def was_used(store: OverlayStore) -> bool:
        """Tell whether the state is that of a task which releases early."""
        return store.get(_ACCOUNT) is not None

    @property
    def _end(self) -> int:
        """The seq of the last output that was made."""
        return self._seq + len(self.queue.outputs)

    @property
    def settled(self) -> bool:
        """Whether every output that may leave has left."""
        return self.queue.out == 0

    # --- what the task makes ---

    def add(self, target: str, raw: bytes) -> None:
        """Take an output that the task has just made."""
        self.queue.append((self._now(), target, raw))

    # --- what the sinks get ---

    def taken_over(self, tables: Collection[str]) -> None:
        """Note that a database has an account of the outputs to its tables."""
        self._tables.update(tables)
        self.targets = dict.fromkeys(tables, 0) | self.targets

    def next_bundle(self, cuts: Collection[int]) -> Bundle | None:
        """Return the next bundle to release, or None. ``cuts``: seqs at which a bundle must end."""
        if not self.queue.out or not self._is_committed or not self._tables <= self.kept.keys():
            return None
        stop, size = self.queue.out, 0
        if (cut := min((cut for cut in cuts if cut > self._seq), default=self._end)) < self._seq + stop:
            stop = cut - self._seq
        queued = self.queue.outputs
        for index in range(stop):
            size += _size(queued[index])
            if size >= _RELEASE_BYTES:  # the rest of its time goes with it
                stop = min(stop, bisect_right(queued, queued[index][0], index, key=_time))
                break
        outputs = queued[:stop]
        times, targets, raws = zip(*outputs, strict=True)
        assert times[-1] <= self.queue.let_out_t, f"an output of {times[-1]} leaves before its time is decided"
        keys, headers = [target.encode() for target in targets], [None] * stop
        digest = digest_outputs(self._digest, keys, raws, times, headers)
        return Bundle(self._seq, Released(self._seq + stop, times[-1], digest), outputs)

    def left(self, bundle: Bundle) -> None:
        """Forget a bundle: every sink has it."""
        assert bundle.after == self._seq, f"a bundle behind {bundle.after} follows output {self._seq}"
        assert bundle.upto.seq == self._seq + len(bundle.outputs), f"{len(bundle.outputs)} outputs to {bundle.upto.seq}"
        self.queue.left(len(bundle.outputs))
        self._seq, self._digest = bundle.upto.seq, bundle.upto.digest

    # --- the state ---

    def save(self) -> None:
        """Put into the state what a sink may lack, and delete what all have. Before the freeze."""
        while self._kept and self._kept[0][1] <= self._seq:
            self._store.delete(_KEPT + _NUMBER.pack(self._kept.popleft()[0]))
        first = max(self._seq, self._kept[-1][1] if self._kept else 0) + 1
        block: list[EarlyOutput] = []
        size = 0
        for output in islice(self.queue.outputs, first - 1 - self._seq, None):
            block.append(output)
            size += _size(output)
            if size >= _BLOCK_BYTES:
                first, block, size = self._keep(first, block), [], 0
        if block:
            self._keep(first, block)
        account = _Account(self._seq, self._digest, self.queue.let_out_t, dict(self.targets))
        saved = self._saved
        news = self.queue.outputs and saved != account  # time alone is none
        if saved is None or saved.seq != account.seq or news:
            self._store.put(_ACCOUNT, msgspec.json.encode(account))
            self._saved = account

    def committed(self) -> None:
        """The state saved last is committed: outputs may leave."""
        if self._saved is not None:
            self._is_committed, self.kept = True, self._saved.targets

    def _keep(self, first: int, block: list[EarlyOutput]) -> int:
        """Put a block into the state; return the seq behind it."""
        assert not self._kept or first == self._kept[-1][1] + 1, f"output {first} is kept behind {self._kept[-1]}"
        self._store.put(_KEPT + _NUMBER.pack(first), msgspec.msgpack.encode(block))
        self._kept.append((first, first + len(block) - 1))
        return first + len(block)


def _size(output: EarlyOutput) -> int:
    return len(output[2]) + _HELD_BYTES
