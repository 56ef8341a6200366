"""Mistakes with the changelog and the store.

They concern ownership, validity, rewrite, trim and changelog position (C1 to C6, R1, K1 to K3, A9).
"""

from dataclasses import replace
from typing import Any

from grete.core.actions import Action, Trim, WipeStore, WriteData
from grete.core.aligned.task import TaskCore
from grete.core.changelog.changelog_fold import ChangelogFold
from grete.core.changelog.changelog_rewrite import ChangelogRewrite
from grete.core.changelog.ownership import Ownership
from grete.core.commit_pipeline import CommitPipeline
from grete.core.events import ChangelogRow
from grete.core.startup import StartUp
from grete.execution.engine.driver import TaskDriver
from grete.stores.overlay.overlay import Overlay
from grete.stores.overlay.overlay_store import OverlayStore
from grete.stores.overlay.rewrite_slice import BEGUN
from tests.verification.simulation.builds import Builds
from tests.verification.simulation.mutants.registry import busier, full_of, mutant
from tests.verification.simulation.plan import Plan, with_settings


def _unfenced(plan: Plan) -> bool:
    return not plan.compare_and_append


def _rounds_in_progress(plan: Plan) -> Plan:
    """Rewrite rounds of several commits, seen by restores in the middle of a round."""
    knobs = replace(plan.knobs, rewrite_share=0.2, rewrite_idle_bytes=1, tail=64)
    return replace(busier(plan), keys=12, knobs=knobs)


def _short_rounds(plan: Plan) -> Plan:
    """Rounds of a few commits, and restores that look at few messages of the tail."""
    knobs = replace(plan.knobs, rewrite_share=0.6, rewrite_idle_bytes=1, tail=6)
    return replace(busier(plan), keys=12, knobs=knobs)


def _repeats(plan: Plan) -> Plan:
    """A log that repeats every third message, and more rollbacks."""
    return replace(busier(plan), repeat_rate=0.3)


def _old_stores(plan: Plan) -> Plan:
    """Stores that come back when their changelog positions are long trimmed, while records still come that delete."""
    inputs = {
        partition: tuple((0.6 * number / len(rows), value) for number, (_, value) in enumerate(rows))
        for partition, rows in plan.inputs.items()
    }
    knobs = replace(plan.knobs, rewrite_share=8.0, rewrite_idle_bytes=1)
    crowded = replace(full_of("stale or wiped store", "freeze", "slow partition")(plan), inputs=inputs)
    return with_settings(replace(crowded, knobs=knobs, keys=3, steps=2 * plan.steps), changelog_retention_ms=0)


def _rewrites_slowly(plan: Plan) -> bool:
    return plan.keys > 4 and plan.knobs.rewrite_share < 1


def _other_builds(plan: Plan) -> bool:
    return Builds(plan).at_work


@mutant(StartUp, "end", "refused", shows=_other_builds)
def refused_start_writes(end: Any) -> Any:
    """A task claims before it holds its graph against its last commit."""

    def mistaken(self: StartUp, event: Any) -> Any:
        check, self._check = self._check, lambda _commit: None
        actions = end(self, event)
        self._check = check
        return actions

    return mistaken


@mutant(StartUp, "row", "ownership", "generation")
def claim_race_ignored(row: Any) -> Any:
    """A process whose generation was claimed by another just before goes on (C1)."""

    def mistaken(self: StartUp, event: ChangelogRow) -> list[Action]:
        actions: list[Action] = row(self, event)
        self._own = self._own._replace(lost=False)
        return actions

    return mistaken


@mutant(Ownership, "appended", "marker", "uncommitted", "fenced", shows=_unfenced)
def commit_not_checked(appended: Any) -> Any:
    """A process does not look for a higher claim before its commit (C3)."""

    def mistaken(self: Ownership, offset: int, highest_own: int, *trailing: int) -> int | None:
        self.settle(offset, *trailing)
        return None

    return mistaken


@mutant(Ownership, "verify_tail", "fenced", shows=lambda plan: bool(plan.topology.streams), focus=_repeats)
def own_repeat_is_foreign(verify_tail: Any) -> Any:
    """A repeat of the own claim is taken for another's (found by the simulator)."""

    def mistaken(self: Ownership, offset: int, value: bytes) -> None:
        claim = self.claim
        assert claim is not None
        self.claim = claim._replace(pid=-1)
        try:
            verify_tail(self, offset, value)
        finally:
            self.claim = claim

    return mistaken


@mutant(TaskCore, "_begin_rollback", "generation")
def generation_kept(begin: Any) -> Any:
    """A rollback goes on as the generation before (C6)."""

    def mistaken(self: TaskCore) -> list[Action]:
        ownership = self.ownership
        seq, sent = ownership.next_seq, ownership._sent
        drop = begin(self)[:2]
        ownership.generation, ownership.next_seq, ownership._sent = ownership.generation - 1, seq, sent
        return [*drop, *self._rolled_back()]

    return mistaken


@mutant(ChangelogFold, "_admit", "halted", "restore", shows=lambda plan: plan.repeat_rate > 0)
def repeats_applied(admit: Any) -> Any:
    """A repeated message of the changelog counts again (C2)."""
    return lambda self, offset, seq, attempt: bool(admit(self, offset, seq, attempt)) or True


@mutant(ChangelogFold, "_new_generation", "halted", "restore", "store")
def uncommitted_applied(new_generation: Any) -> Any:
    """Data that no commit has closed stays when a new generation begins (R1)."""

    def mistaken(self: ChangelogFold, generation: int) -> None:
        kept = self._open.segments
        new_generation(self, generation)
        self._open.segments = kept

    return mistaken


@mutant(Overlay, "rewrite", "restore", "store", shows=_rewrites_slowly)
def rewrite_of_open_batch(rewrite: Any) -> Any:
    """The rewrite reads the open write batch, not the frozen checkpoint (K2)."""

    def mistaken(self: Overlay, *args: Any) -> Any:
        rows, cursor, done = rewrite(self, *args)
        newest = [(store, key, self.store(store).get(key)) for store, key, _ in rows]
        return [row for row in newest if row[2] is not None], cursor, done

    return mistaken


def _rests(plan: Plan) -> Plan:
    """Checkpoints that pay for no row, between those that do."""
    return replace(busier(plan), keys=12, knobs=replace(plan.knobs, rewrite_share=0.06, rewrite_idle_bytes=40))


@mutant(Overlay, "rewrite", "restore", "store", focus=_rests)
def round_ends_unwritten(rewrite: Any) -> Any:
    """A round that begins with a checkpoint that rewrites nothing is taken for a complete one (K2)."""

    def mistaken(self: Overlay, *args: Any) -> Any:
        rows, cursor, done = rewrite(self, *args)
        return rows, b"" if cursor == BEGUN else cursor, done

    return mistaken


@mutant(Overlay, "rewrite", "restore", "store", focus=_rounds_in_progress)
def last_keys_of_the_start(rewrite: Any) -> Any:
    """A round ends at the last keys of the first one: what has come behind them since is not rewritten (K2)."""

    before_all = b"\xff\xfe"  # a cursor that does not look like the begin of a round

    def mistaken(self: Overlay, cursor: bytes, *bounds: Any) -> Any:
        begins = cursor in (b"", BEGUN) and self.rewrites.last_keys
        return rewrite(self, before_all if begins else cursor, *bounds)

    return mistaken


@mutant(OverlayStore, "is_frozen", "restore", "store", shows=_rewrites_slowly)
def rewrite_over_dirty(is_frozen: Any) -> Any:
    """The rewrite repeats keys that the checkpoint has changed (K2)."""
    return lambda self, key: False


@mutant(TaskCore, "_started", "restore", "fenced", shows=_rewrites_slowly)
def cursor_not_committed(started: Any) -> Any:
    """A restarted task rewrites from somewhere else (K2)."""

    def mistaken(self: TaskCore) -> Any:
        actions = started(self)
        if self.commits.rewrite.cursor:
            self.commits.rewrite.cursor = b"\x00\x0bk99"
        return actions

    return mistaken


@mutant(ChangelogRewrite, "trim", "restore")
def current_round_trimmed(trim: Any) -> Any:
    """The changelog is trimmed up to the start of the open round, not of the complete one (K2)."""

    def mistaken(self: ChangelogRewrite, now_ms: int, changelog_retention_ms: int) -> int | None:
        return None if trim(self, now_ms, changelog_retention_ms) is None else self.round_start

    return mistaken


@mutant(
    CommitPipeline,
    "data_written",
    "fenced",
    shows=lambda plan: _unfenced(plan) and not plan.tight_batch,
    focus=_short_rounds,
)
def own_round_named(data_written: Any) -> Any:
    """A commit names the round that it completes itself as the base of a bootstrap (1.8 R1)."""

    def mistaken(self: CommitPipeline, event: Any) -> Any:
        base = self.rewrite.base
        if event.round_done:
            self.rewrite.base = self.rewrite.round_start
        actions = data_written(self, event)
        self.rewrite.base = base
        return actions

    return mistaken


@mutant(TaskDriver, "_perform_next", "trim")
def stream_trimmed_at_position(perform_next: Any) -> Any:
    """A stream is trimmed up to what was read, not to what the commit resumes at (K3)."""

    def mistaken(self: TaskDriver) -> bool:
        action = self.parts.todo[0]
        if isinstance(action, Trim):
            assert isinstance(self.core, TaskCore)
            position = self.core.inputs.position.get(action.partition, action.offset)
            self.parts.todo[0] = Trim(action.partition, max(position, action.offset))
        return bool(perform_next(self))

    return mistaken


@mutant(Overlay, "apply_chunk", "store")
def position_before_data(apply_chunk: Any) -> Any:
    """The changelog position is written ahead of the keys (A7)."""

    def mistaken(self: Overlay, changelog_position: bytes, keys_max: int = 1000) -> bool:
        self._base.write([], changelog_position)
        return bool(apply_chunk(self, changelog_position, keys_max))

    return mistaken


@mutant(TaskDriver, "_write_data", "uncommitted")
def store_before_commit(write_data: Any) -> Any:
    """A checkpoint is written to the store while its commit is on its way (A9)."""

    def mistaken(self: TaskDriver, action: Any) -> bool:
        self._store.write(list(self.parts.io.overlay.frozen_items()))
        return bool(write_data(self, action))

    return mistaken


@mutant(Overlay, "next_frozen", "uncommitted", "store", "restore", "digest", focus=busier)
def slice_of_the_open_batch(next_frozen: Any) -> Any:
    """A slice sends what a key is by now, not what it was at the freeze (A8)."""

    def mistaken(self: Overlay, keys_max: int) -> Any:
        return [
            (number, key, self.store(number)._open.get(key, value))
            for number, key, value in next_frozen(self, keys_max)
        ]

    return mistaken


@mutant(TaskDriver, "_slice_alone", "halted", "gap", "lost", "digest", "frontier", world="deterministic")
def input_before_a_seek(slice_alone: Any) -> Any:
    """A slice waits for input though a seek is asked for behind it: what is read then is read ahead of it (R5)."""
    return property(lambda self: isinstance(self.parts.todo[0], WriteData))


@mutant(OverlayStore, "newest", "uncommitted", "store", world="deterministic")
def part_applied_as_it_was(newest: Any) -> Any:
    """A part of a checkpoint goes into the store as it was when it was sent, not as the commit has it (A9)."""
    return lambda self, part, keys_max, bytes_max: part.newest(keys_max, bytes_max)


@mutant(CommitPipeline, "next_slice", "halted", "error", "core", "lost", "restore", world="deterministic")
def numbered_twice(next_slice: Any) -> Any:
    """While a slice is asked for, another message gets its ChangelogSeq (1.2)."""

    def mistaken(self: CommitPipeline) -> Any:
        action = next_slice(self)
        self.writing = False
        return action

    return mistaken


@mutant(StartUp, "_probe", "store", "restore", shows=lambda plan: not plan.tight_batch, focus=_old_stores)
def store_not_wiped(probe: Any) -> Any:
    """A restore fills a store that is not empty (R1)."""
    return lambda self: [action for action in probe(self) if not isinstance(action, WipeStore)]


@mutant(Overlay, "drop_open", "output", "uncommitted", shows=lambda plan: bool(plan.topology.streams))
def batch_kept(drop_open: Any) -> Any:
    """A rollback keeps the open write batch (R4)."""
    return lambda self: None
