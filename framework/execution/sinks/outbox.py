"""The outbox of one task: outputs to files and tables wait in a reserved store, as state, until they are applied (S2).

A checkpoint's outputs are committed with it, as blocks; then they are applied to each sink in order, beside the task's
loop, and deleted in a later checkpoint. So the outputs that a sink lacks after a crash are still here, and the sink
knows which it has.
"""

import struct
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor
from functools import partial
from hashlib import sha256
from os import urandom
from typing import Any

import msgspec

from grete.api.sinks.sink import EarlySink, Entry, Owner, Sink
from grete.errors import ConfigError, Halted
from grete.execution.sinks.early_plan import EarlyPlan
from grete.execution.sinks.early_release import EarlyReleases
from grete.execution.sinks.outbox_executor import AtOnce, Background, Step, StepPlan
from grete.execution.sinks.sink_targets import (
    FILES,
    MakeSinks,
    SinkOutputs,
    SinkTarget,
    TargetSinks,
    encoder_of,
    sinks_of,
    target_of,
)
from grete.execution.timing.reserved_stores import FILES_OWNER
from grete.halts import HaltCode
from grete.settings import Settings
from grete.stores.overlay.overlay_store import OverlayStore

_NUMBER = struct.Struct(">Q")  # checkpoints and block numbers: never negative
_BLOCK, _CLOSED = b"b", b"v"  # first byte of a key: a block by its number, or what a checkpoint holds
# output → last checkpoint applied and deleted here; an id that tells us from a namesake
_ACCOUNT, _NONCE = b"account", b"nonce"
_NONE_YET = -1  # of an account: no checkpoint was applied
_BLOCK_BYTES = 256 * 1024  # about; one step of an application
_HELD_BYTES = 100  # of an entry, beyond its value


class _Closed(msgspec.Struct, array_like=True):
    """The contents of a checkpoint: blocks first <= number < end, and the targets that the indexes in them mean."""

    checkpoint_id: int
    first: int
    end: int
    size: int
    targets: list[str]


class Outbox:
    """The outputs that wait and those on their way. ``reload`` comes first; ``work`` must be called often."""

    def __init__(
        self,
        owner: tuple[str, str],
        store: OverlayStore,
        settings: Settings,
        executor: Executor | None = None,
        sinks: MakeSinks = sinks_of,
        logical_us: Callable[[], int] | None = None,
    ) -> None:
        """``owner``: job and task. ``executor`` runs what is done to the ``sinks`` made; by default at once.

        ``logical_us`` returns the logical time of an output: sinks that can do so get it ahead of the commit (D5).
        """
        self.sent_to = Counter[str]()  # attribute of the task → outputs since the process started; some count again
        self.ready = False  # the sinks have been seen to take what they are declared for
        self._owner = owner
        self._store = store
        self._sinks = TargetSinks(owner[1], sinks)
        self._targets: list[str] = []
        self._open: list[tuple[int, bytes]] = []  # the block to come: (index of the target, value)
        self._open_bytes = self._size = 0  # of that block; of all since the last checkpoint was closed
        self._first = self._next = 0
        self._closing: _Closed | None = None  # frozen, its commit is on its way
        self._pending: deque[_Closed] = deque()
        self._applied: list[_Closed] = []  # to delete in the next checkpoint
        self._account: dict[str, int] = {}  # table → last checkpoint applied to its database; none: its row was made
        self._took: dict[str, int] = {}  # the same, of those in ``_applied``
        self._made: set[str] = set()  # tables whose database has our row, since this start
        self._nonce = b""
        self._waiting_bytes = 0  # of committed checkpoints that are not applied yet
        self.early = None if logical_us is None else EarlyReleases(store, logical_us)
        self._early_plan = None if self.early is None else EarlyPlan(owner, self.early, self._sinks)
        self._mark = (0, 0, 0, 0, self._open)
        self._background = Background(
            self._plan,
            AtOnce() if executor is None else executor,
            settings.restart_backoff_ms,
            settings.restart_backoff_ms_max,
        )

    @property
    def bytes(self) -> int:
        """Size of the outputs that wait for their checkpoint's commit, or may not leave ahead of it yet."""
        early = 0 if self.early is None else self.early.bytes
        return self._size + early + (self._closing.size if self._closing else 0)

    @property
    def waiting_bytes(self) -> int:
        """Size of the outputs that may go to their sinks, and are not there yet."""
        return self._waiting_bytes + (0 if self.early is None else self.early.waiting_bytes)

    @property
    def settled(self) -> bool:
        """Tell whether every output is in its sink that has left the task, or is of a checkpoint that was closed.

        A commit is in the log before the store has it, and only then do its outputs go to their sinks.
        """
        return self._closing is None and not self._has_work()

    @property
    def trouble(self) -> str | None:
        """The reason why a sink refuses or does not answer, if one does."""
        return self._background.trouble

    def sender(self, attribute: str, target: SinkTarget) -> Callable[..., None]:
        """Return Output.send for what is no topic. After ``reload``."""
        encode, name, early = encoder_of(target), target_of(attribute, target), self.early
        sent_to = self.sent_to
        if early is not None and isinstance(self._sinks.by_target[name], EarlySink):

            def release(_key: object, value: object, **_: object) -> None:
                early.add(name, encode(value))
                sent_to[attribute] += 1

            return release
        index = len(self._targets)
        self._targets.append(name)

        def send(_key: object, value: object, **_: object) -> None:
            raw = encode(value)
            self._open.append((index, raw))
            sent_to[attribute] += 1
            size = len(raw) + _HELD_BYTES
            self._size += size
            self._open_bytes += size
            if self._open_bytes >= _BLOCK_BYTES:
                self._seal()

        return send

    def reload(self, outputs: SinkOutputs) -> None:
        """Start from the restored state: apply what its checkpoints hold and the sinks may lack (S2).

        Raises ConfigError for a table's url that is unusable, and if outputs were released early and would not be now;
        nothing is opened yet.
        """
        rows = self._store.scan(_CLOSED, b"w")
        self._pending = deque(msgspec.json.decode(row, type=_Closed) for _, row in rows)
        self._first = self._next = self._pending[-1].end if self._pending else 0
        self._waiting_bytes = sum(closed.size for closed in self._pending)
        self._targets, self._applied, self._closing, self._took, self._made = [], [], None, {}, set()
        self._open, self._open_bytes, self._size = [], 0, 0
        self._account = msgspec.json.decode(self._store.get(_ACCOUNT) or b"{}", type=dict[str, int])
        self._nonce = self._store.get(_NONCE) or self._store.get(FILES_OWNER) or _new_nonce(self._pending).encode()
        self._sinks.declare(outputs)
        if self.early is not None:
            self.early.reload()
        elif EarlyReleases.was_used(self._store) and any(isinstance(each, EarlySink) for each in self._sinks.each):
            raise ConfigError(
                f"task {self._owner[1]} has released outputs to files and tables ahead of its commits: set "
                "sink_delivery = early again, or start the job under another name, with tables and directories of its "
                "own",
                task=self._owner[1],
                setting="sink_delivery",
            )
        self._background.restart()

    def close_checkpoint(self, checkpoint_id: int) -> None:
        """Note which blocks are the checkpoint's, and delete those that have been applied. Before the freeze."""
        for closed in self._applied:
            for number in range(closed.first, closed.end):
                self._store.delete(_BLOCK + _NUMBER.pack(number))
            self._store.delete(_CLOSED + _NUMBER.pack(closed.checkpoint_id))
        if self._applied:
            self._keep_nonce(only_files=True)
        made = dict.fromkeys(sorted(self._made - self._account.keys()), _NONE_YET) if self._size else {}
        if made or (self._applied and self._took):
            self._account |= made | self._took
            self._store.put(_ACCOUNT, msgspec.json.encode(self._account))
        self._applied, self._took = [], {}
        if self.early is not None:
            self.early.save()
            self._keep_nonce()
        self._seal()
        if self._next > self._first:
            self._keep_nonce(only_files=all(target.startswith(FILES) for target in self._targets))
            self._closing = _Closed(checkpoint_id, self._first, self._next, self._size, self._targets)
            self._store.put(_CLOSED + _NUMBER.pack(checkpoint_id), msgspec.json.encode(self._closing))
            self._first, self._size = self._next, 0

    def committed(self) -> None:
        """The checkpoint closed last is committed and in the store: it may be applied."""
        if self.early is not None:
            self.early.committed()
        if self._closing is not None:
            self._pending.append(self._closing)
            self._waiting_bytes += self._closing.size
            self._closing = None

    def work(self, now_ms: float) -> bool:
        """Do the next step towards the sinks; False if there is nothing to do now. After ``reload``.

        Raises ConfigError if a sink cannot take what it is declared for, Halted if it refuses a checkpoint for good.
        """
        return (self._has_work() or not self._background.idle) and self._background.work(now_ms)

    def _has_work(self) -> bool:
        return not self.ready or bool(self._pending) or not (self.early is None or self.early.settled)

    def due_in_ms(self, now_ms: float) -> float:
        """Return in how many ms ``work`` may have something to do."""
        return self._background.due_in_ms(now_ms)

    def mark(self) -> None:
        """Remember this moment for ``rollback``."""
        self._mark = self._next, self._open_bytes, self._size, len(self._open), self._open
        if self.early is not None:
            self.early.mark()

    def rollback(self) -> None:
        """Take back the entries since ``mark``; the blocks that were sealed since are undone by the overlay."""
        self._next, self._open_bytes, self._size, length, self._open = self._mark
        del self._open[length:]
        if self.early is not None:
            self.early.rollback()

    def abandon(self) -> None:
        """Let go of the sinks as the end of the process would. For hosts of many lives in one process."""
        for sink in self._sinks.each:
            sink.close()

    def _keep_nonce(self, *, only_files: bool = False) -> None:
        key = FILES_OWNER if only_files else _NONCE
        if self._store.get(_NONCE) is None and self._store.get(key) is None:
            self._store.put(key, self._nonce)

    def _seal(self) -> None:
        """Put the open block into the store. A new list is begun: ``mark`` may hold the old one."""
        if self._open:
            self._store.put(_BLOCK + _NUMBER.pack(self._next), msgspec.msgpack.encode(self._open))
            self._next += 1
            self._open, self._open_bytes = [], 0

    # --- Applying ---

    def _plan(self) -> StepPlan:
        """Open the sinks, then apply each committed checkpoint, to one sink after the other."""
        opened: set[int] = set()
        for sink in self._sinks.each:
            yield from self._opened(sink, opened)
        self._sinks.refuse_shared()
        self.ready = True
        while True:
            if self._pending:
                yield from self._apply_next(opened)
            elif self._early_plan is not None and (bundle := self._early_plan.next_bundle()) is not None:
                yield from self._early_plan.release(bundle, lambda sink: self._opened(sink, opened))
            else:
                yield None

    def _apply_next(self, opened: set[int]) -> StepPlan:
        closed, took = self._pending[0], list[str]()
        for sink, names in self._sinks.destinations(closed.targets):
            yield from self._opened(sink, opened)
            if (yield from self._apply(closed, sink, names)):
                took += self._sinks.tables_of(sink)
        self._applied.append(self._pending.popleft())
        self._took |= dict.fromkeys(took, closed.checkpoint_id)
        self._waiting_bytes -= closed.size

    def _apply(self, closed: _Closed, sink: Sink, names: dict[int, str]) -> Generator[Step, Any, bool]:
        """Apply to one sink what a checkpoint holds for it; return whether it holds anything."""
        begun = False
        for entries in self._entries(closed, names):
            if not begun:
                begun = yield partial(sink.begin, closed.checkpoint_id)
                if not begun:
                    return True
            yield partial(sink.write, entries)
        if begun:
            yield sink.commit
        return begun

    def _opened(self, sink: Sink, opened: set[int]) -> StepPlan:
        """Open a sink once in a plan. Raises Halted if it lacks what it had."""
        if id(sink) in opened:
            return
        tables = self._sinks.tables_of(sink)
        in_state = [self._account[table] for table in tables if table in self._account]
        known = max(in_state, default=_NONE_YET)
        is_kept = bool(in_state) and known == _NONE_YET  # otherwise what a new account lacks is noticed below
        releases = self._early_plan is not None and self._early_plan.is_kept(sink)
        self._sinks.expect(sink, applies=is_kept, releases=releases)
        applied = yield partial(sink.open, Owner(*self._owner, self._nonce.decode()))
        opened.add(id(sink))
        self._made.update(tables)
        if applied is not None and applied < known:
            job, task = self._owner
            raise Halted(
                f"{sink.name} has checkpoint {applied} of job {job!r}, task {task!r} (-1: none), but checkpoint "
                f"{known} was applied and is no longer kept here: was it restored from a backup, or is it another "
                f"database? Restore what it lacks; if that may be missing, set version = {known} in that row of "
                "grete_applied",
                task=task,
                code=HaltCode.SINK_WENT_BACK,
            )
        if self._early_plan is not None and isinstance(sink, EarlySink):
            yield from self._early_plan.take_over(sink)

    def _entries(self, closed: _Closed, names: dict[int, str]) -> Iterator[list[Entry]]:
        """Yield a sink's entries of a checkpoint, in their order, a block at a time: a checkpoint may be large."""
        start, end = _NUMBER.pack(closed.first), _NUMBER.pack(closed.end)
        for _, block in self._store.scan(_BLOCK + start, _BLOCK + end):
            entries = msgspec.msgpack.decode(block, type=list[tuple[int, bytes]])
            found = [(names[index], raw) for index, raw in entries if index in names]
            if found:
                yield found


def _new_nonce(pending: Iterable[_Closed]) -> str:
    """Return the id that tells us from a namesake; it stays while checkpoints of release 0.3.0 wait without one."""
    waiting = list(pending)
    return sha256(msgspec.json.encode(waiting)).hexdigest()[:16] if waiting else urandom(8).hex()
