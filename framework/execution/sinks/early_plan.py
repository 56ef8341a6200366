"""The way of early releases to their sinks: what a sink has is compared, what it lacks is released (D5)."""

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from grete.api.sinks.sink import EarlySink, Released, Sink
from grete.errors import Halted
from grete.execution.sinks.early_release import Bundle, EarlyReleases
from grete.execution.sinks.outbox_executor import Step, StepPlan
from grete.execution.sinks.sink_targets import TargetSinks
from grete.halts import HaltCode

_UNKNOWN = -1  # instead of a digest


class EarlyPlan:
    """The part of an outbox's plan that is about early releases."""

    def __init__(self, owner: tuple[str, str], early: EarlyReleases, sinks: TargetSinks) -> None:
        """``owner``: job and task."""
        self._owner = owner
        self._early = early
        self._sinks = sinks
        self._at: dict[int, Released] = {}  # id of a sink → how far it has the outputs

    def is_kept(self, sink: Sink) -> bool:
        """Whether the state knows that a database has made its account of our outputs, and of no output in it."""
        known = [self._early.kept[table] for table in self._sinks.tables_of(sink) if table in self._early.kept]
        return bool(known) and not any(known)  # otherwise what a new account lacks is noticed

    def take_over(self, sink: EarlySink) -> Generator[Step, Any, None]:
        """Take over a sink that was opened, and note how far it is. Raises Halted if it lacks what it had."""
        found: Released = yield partial(sink.last_released, self._early.generation)
        known = max((self._early.targets.get(target, 0) for target in self._sinks.targets_of(sink)), default=0)
        if found.seq < known:
            if self._sinks.tables_of(sink):
                raise self._lacks(sink, found.seq, known)
            found = Released(known, found.t, _UNKNOWN)  # files that were taken away
        self._at[id(sink)] = found
        self._early.taken_over(self._sinks.tables_of(sink))

    def next_bundle(self) -> Bundle | None:
        """Return the next bundle to release, or None. If one sink is ahead of the others, the bundle ends there."""
        return self._early.next_bundle([at.seq for at in self._at.values()])

    def release(self, bundle: Bundle, opened: Callable[[Sink], StepPlan]) -> StepPlan:
        """Release a bundle to each sink that lacks it. Raises Halted if a sink has had another one.

        ``opened`` opens a sink that is new: one of files that the code does not declare any more.
        """
        targets = list(dict.fromkeys(target for _, target, _ in bundle.outputs))
        for sink, names in list(self._sinks.destinations(targets)):
            yield from opened(sink)
            assert isinstance(sink, EarlySink)
            attributes, at = {targets[index]: name for index, name in names.items()}, self._at[id(sink)]
            assert not bundle.after < at.seq < bundle.upto.seq, f"{sink.name} has a part of a bundle: {at.seq}"
            if at.seq < bundle.upto.seq:
                entries = [(attributes[target], raw) for _, target, raw in bundle.outputs if target in attributes]
                yield partial(sink.release, at.seq, bundle.upto, entries)
                self._at[id(sink)] = bundle.upto
            self._early.targets |= dict.fromkeys(attributes, self._at[id(sink)].seq)
        for sink in self._sinks.each:
            has = self._at.get(id(sink), bundle.upto)
            if has.seq == bundle.upto.seq and has.digest not in (bundle.upto.digest, _UNKNOWN):
                raise self._differs(sink, bundle)
        self._early.left(bundle)

    def _lacks(self, sink: Sink, seq: int, known: int) -> Halted:
        job, task = self._owner
        return Halted(
            f"{sink.name} has outputs 1 to {seq} of job {job!r}, task {task!r}, but those up to {known} were "
            "released and are no longer kept here: was it restored from a backup, or is it another database? Restore "
            f"what it lacks; if that may be missing, set seq = {known} in that row of grete_released",
            task=task,
            code=HaltCode.SINK_WENT_BACK,
        )

    def _differs(self, sink: Sink, bundle: Bundle) -> Halted:
        task = self._owner[1]
        return Halted(
            f"{task} is not deterministic: after a restart it made one or more of the outputs {bundle.after + 1} to "
            f"{bundle.upto.seq} (those to all its files and tables are counted) again, and not as they are visible in "
            f"{sink.name}. A deterministic task must make the same outputs of the same input: no clock, no randomness, "
            "no order of a set. Once its code is deterministic, start the job under another name, with tables and "
            "directories of its own: what is visible does not follow from the committed state",
            task=task,
            code=HaltCode.NOT_DETERMINISTIC,
        )
