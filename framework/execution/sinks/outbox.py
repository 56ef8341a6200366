"""The outbox of one task: outputs to files and tables wait in a reserved store, as state, until they are applied (S2).

A checkpoint's outputs are committed with it, as blocks; then they are applied to each sink in order, beside the task's
loop, and deleted in a later checkpoint. So the outputs that a sink lacks after a crash are still here, and the sink
knows which it has.
"""

from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import Executor
from functools import partial
from typing import Any

from grete.api.sinks.sink import EarlySink, Entry, Owner, Sink
from grete.errors import ConfigError, Halted, OutputRefused
from grete.execution.sinks.early_plan import EarlyPlan
from grete.execution.sinks.early_release import EarlyReleases
from grete.execution.sinks.outbox_executor import Background, InlineExecutor, Rest, Step, StepPlan
from grete.execution.sinks.refusals import Refusals
from grete.execution.sinks.sink_account import NONE_YET, SinkAccount
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
from grete.execution.sinks.waiting_outputs import ClosedOutputs, OpenOutputs, PendingOutputs
from grete.halts import HaltCode
from grete.settings import Settings
from grete.stores.overlay.overlay_store import OverlayStore

_PACED_MS = 100  # of a sink with a rate: outputs of this time are sent together


class Outbox:
    """The outputs that wait and those on their way. ``reload`` comes first; ``work`` must be called often.

    While ``refusals.due``, its ``set_aside`` is to be called where the task may send, or nothing goes on.
    """

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
        self._open, self._pending, self._account = OpenOutputs(store), PendingOutputs(store), SinkAccount(store)
        self.refusals = Refusals(store)
        self.early = None if logical_us is None else EarlyReleases(store, logical_us)
        self._early_plan = None if self.early is None else EarlyPlan(owner, self.early, self._sinks)
        self._background = Background(
            self._plan,
            InlineExecutor() if executor is None else executor,
            settings.restart_backoff_ms,
            settings.restart_backoff_ms_max,
        )

    @property
    def bytes(self) -> int:
        """Size of the outputs that wait for their checkpoint's commit, or may not leave ahead of it yet."""
        early, closing = 0 if self.early is None else self.early.queue.bytes, self._pending.closing
        return self._open.size + early + (closing.size if closing else 0)

    @property
    def waiting_bytes(self) -> int:
        """Size of the outputs that may go to their sinks, and are not there yet."""
        return self._pending.committed_bytes + (0 if self.early is None else self.early.queue.waiting_bytes)

    @property
    def settled(self) -> bool:
        """Tell whether every output is in its sink that has left the task, or is of a checkpoint that was closed.

        A commit is in the log before the store has it, and only then do its outputs go to their sinks.
        """
        return self._pending.closing is None and not self._has_work() and self.refusals.settled

    @property
    def may_end(self) -> bool:
        """Tell whether a task that closes no more checkpoints may end: no sink has anything to do before one.

        What a sink has refused, and no checkpoint has set aside, it is asked for again at the next start.
        """
        waits = self._background.idle and not self.refusals.settled
        return self.settled or (waits and self._pending.closing is None)

    @property
    def trouble(self) -> str | None:
        """The reason why a sink refuses or does not answer, if one does."""
        return self._background.retries.trouble

    def sender(self, attribute: str, target: SinkTarget) -> Callable[..., None]:
        """Return Output.send for what is no topic. After ``reload``."""
        encode, name, early = encoder_of(target), target_of(attribute, target), self.early
        sent_to = self.sent_to
        if early is not None and isinstance(self._sinks.by_target[name], EarlySink):

            def release(_key: object, value: object, **_: object) -> None:
                early.add(name, encode(value))
                sent_to[attribute] += 1

            return release
        return self._open.sender(name, encode, attribute, sent_to)

    def reload(self, outputs: SinkOutputs) -> None:
        """Start from the restored state: apply what its checkpoints hold and the sinks may lack (S2).

        Raises ConfigError for a table's url that is unusable, and if outputs were released early and would not be now;
        nothing is opened yet.
        """
        self._open.begin(self._pending.reload())
        self.refusals.reload()
        self._account.reload(self._pending.committed)
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
        if applied := self._pending.delete_applied():
            self._account.keep_nonce(only_files=True)
        self.refusals.close(applied)
        self._account.save(has_outputs=self._open.size > 0)
        if self.early is not None:
            self.early.save()
            self._account.keep_nonce()
        self._open.seal()
        closed = self._open.close(checkpoint_id)
        if closed is not None:
            self._account.keep_nonce(only_files=all(target.startswith(FILES) for target in closed.targets))
            self._pending.close(closed)

    def committed(self) -> None:
        """The checkpoint closed last is committed and in the store: it may be applied."""
        if self.early is not None:
            self.early.committed()
        self._pending.commit()
        self.refusals.committed()

    def work(self, now_ms: float) -> bool:
        """Do the next step towards the sinks; False if there is nothing to do now. After ``reload``.

        Raises ConfigError if a sink cannot take what it is declared for, Halted if it refuses a checkpoint for good.
        """
        return (self._has_work() or not self._background.idle) and self._background.work(now_ms)

    def _has_work(self) -> bool:
        return not self.ready or bool(self._pending.committed) or not (self.early is None or self.early.settled)

    def due_in_ms(self, now_ms: float) -> float:
        """Return in how many ms ``work`` may have something to do."""
        return self._background.due_in_ms(now_ms)

    def mark(self) -> None:
        """Remember this moment for ``rollback``."""
        self._open.mark()
        if self.early is not None:
            self.early.queue.mark()

    def rollback(self) -> None:
        """Take back the entries since ``mark``."""
        self._open.rollback()
        if self.early is not None:
            self.early.queue.rollback()

    def abandon(self) -> None:
        """Let go of the sinks as the end of the process would. For hosts of many lives in one process."""
        for sink in self._sinks.each:
            sink.close()

    # --- Applying ---

    def _plan(self) -> StepPlan:
        """Open the sinks, then apply each committed checkpoint, to one sink after the other."""
        opened: set[int] = set()
        for sink in self._sinks.each:
            yield from self._opened(sink, opened)
        self._sinks.refuse_shared()
        self.ready = True
        while True:
            if self._pending.committed:
                yield from self._apply_next(opened)
            elif self._early_plan is not None and (bundle := self._early_plan.next_bundle()) is not None:
                yield from self._early_plan.release(bundle, lambda sink: self._opened(sink, opened))
            else:
                yield None

    def _apply_next(self, opened: set[int]) -> StepPlan:
        closed, took = self._pending.committed[0], list[str]()
        for sink, names in self._sinks.destinations(closed.targets):
            yield from self._opened(sink, opened)
            if (yield from self._apply(closed, sink, names, opened)):
                took += self._sinks.tables_of(sink)
        while not self.refusals.is_aside(closed.checkpoint_id):  # with it what is applied may be deleted
            yield None
        self._account.applied(took, closed.checkpoint_id)
        self._pending.applied()

    def _apply(
        self, closed: ClosedOutputs, sink: Sink, names: dict[int, str], opened: set[int]
    ) -> Generator[Step | Rest | None, Any, bool]:
        """Apply to one sink what a checkpoint holds for it; return whether it holds anything.

        A sink that keeps what it has applied is not asked again for what it refused. So the rest is applied once that
        is set aside for good: until then a crash would leave an output that is neither there nor set aside (S2a).
        """
        begun = False
        while True:
            for numbers, entries in self._pending.entries(closed, names):
                if not begun:
                    begun = yield partial(sink.begin, closed.checkpoint_id)
                    if not begun:
                        return True
                yield from self._write(closed, sink, names, numbers, entries)
            if not begun or not self._sinks.keeps(sink) or self.refusals.is_committed(closed.checkpoint_id):
                break
            if self._sinks.tables_of(sink):
                yield from self._try_next(sink)
            yield sink.close
            opened.discard(id(sink))
            while not self.refusals.is_committed(closed.checkpoint_id):
                yield None
            yield from self._opened(sink, opened)
            begun = False
        if begun:
            yield sink.commit
        return begun

    def _write(
        self, closed: ClosedOutputs, sink: Sink, names: dict[int, str], numbers: list[int], entries: list[Entry]
    ) -> StepPlan:
        """Write entries but for those that the sink refuses, if it may. Raises OutputRefused if it may not."""
        at, size, checkpoint_id = 0, len(entries), closed.checkpoint_id
        left_out, pace_ms = self.refusals.left_out(checkpoint_id), self._sinks.pace_ms(sink)
        at_a_time = max(1, int(_PACED_MS / pace_ms)) if pace_ms else size
        while at < len(entries):
            if numbers[at] in left_out:
                self._sinks.pass_over(sink)
                at += 1
                continue
            begin, end = at, min(at + size, at + at_a_time, len(entries))
            end = next((n for n in range(at, end) if numbers[n] in left_out), end) if left_out else end
            try:
                yield partial(sink.write, entries[at:end])
                at, size = end, 2 * size
            except OutputRefused as error:
                at += error.index
                target = next(closed.targets[index] for index, name in names.items() if name == entries[at][0])
                if not self.refusals.take(checkpoint_id, numbers[at], target, sink.name, entries[at], error):
                    raise
                at, size = at + 1, 1  # where one is refused, the next one may be, too: a sink may try all at a time
            if pace_ms:
                yield Rest(pace_ms * (at - begin))

    def _try_next(self, sink: Sink) -> StepPlan:
        """Find which rows of the checkpoints behind a database refuses, too: one wait does for all. Nothing is kept."""
        for closed in list(self._pending.committed)[1:]:
            for names in [names for each, names in self._sinks.destinations(closed.targets) if each is sink]:
                for numbers, entries in self._pending.entries(closed, names):
                    try:
                        yield from self._write(closed, sink, names, numbers, entries)
                    except OutputRefused:
                        return  # its turn comes

    def _opened(self, sink: Sink, opened: set[int]) -> StepPlan:
        """Open a sink once in a plan. Raises Halted if it lacks what it had."""
        if id(sink) in opened:
            return
        tables = self._sinks.tables_of(sink)
        in_state = self._account.known(tables)
        is_kept = in_state == NONE_YET  # otherwise what a new account lacks is noticed below
        releases = self._early_plan is not None and self._early_plan.is_kept(sink)
        self._sinks.expect(sink, applies=is_kept, releases=releases)
        applied = yield partial(sink.open, Owner(*self._owner, self._account.nonce.decode()))
        opened.add(id(sink))
        self._account.opened(tables)
        if applied is not None and in_state is not None and applied < in_state:
            job, task = self._owner
            raise Halted(
                f"{sink.name} has checkpoint {applied} of job {job!r}, task {task!r} (-1: none), but checkpoint "
                f"{in_state} was applied and is no longer kept here: was it restored from a backup, or is it another "
                f"database? Restore what it lacks; if that may be missing, set version = {in_state} in that row of "
                "grete_applied",
                task=task,
                code=HaltCode.SINK_WENT_BACK,
            )
        if self._early_plan is not None and isinstance(sink, EarlySink):
            yield from self._early_plan.take_over(sink)
