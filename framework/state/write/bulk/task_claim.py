"""A task claimed by a process that is no worker: claim (C1), append, verify (C3)."""

import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from grete.core.changelog.ownership import NOWHERE, TailCheck
from grete.core.graph.task_topology import TaskWiring
from grete.errors import Fenced, OffsetOutOfRange, TransientError
from grete.execution.changelog.changelog_writer import find_outcome
from grete.logs.partition_reader import rows
from grete.ports import Delivery, ExternalRecord, Log
from grete.protocol.changelog import ChangelogHeader, ChangelogType, Claim, Outcome, encode_claim, encode_outcome
from grete.protocol.commit import Commit
from grete.protocol.ids import RollbackEntry, TopicPartition
from grete.state.read.checkpoints.snapshots import fold_to_end

ACK_S_MAX = 600.0  # an append that takes longer has an unknown outcome (C4)


@dataclass(frozen=True, slots=True)
class ClaimedTask:
    """One task. ``begin``: the offset behind its claim, made at ``time_ms``; ``base``: the last commit that counts."""

    wiring: TaskWiring
    generation: int
    nonce: bytes
    transactional: bool
    begin: int = 0
    time_ms: int = 0
    base: Commit | None = None
    base_offset: int = -1
    rollback_history: tuple[RollbackEntry, ...] = ()
    next_seq: int = 1
    lease: int = 0  # deterministic: progress messages up to it may have been sent, in µs
    went_on: bool = False  # deterministic: there was an input decision or output release since ``base``

    @property
    def changelog(self) -> TopicPartition:
        """Return its changelog."""
        return self.wiring.changelog

    def header(self, kind: ChangelogType) -> ChangelogHeader:
        """Return the header of the next message that is no attempt's data."""
        return ChangelogHeader(kind, self.generation, self.next_seq, 0)


def claim(log: Log, wiring: TaskWiring, *, transactional: bool = False, settle: bool = True) -> ClaimedTask:
    """Claim a task, and read up to the own claim (C1). ``settle``: a bulk write in doubt here gets its outcome.

    At task (0, 0) it is rolled back: its process can no longer decide it. Elsewhere it gets a copy of the outcome
    there. Raises Fenced if there is none; TransientError, Halted as the log does.
    """
    if transactional:
        log.transactional(wiring.changelog)
    fold = fold_to_end(log, wiring)
    own = Claim(os.urandom(16), platform.node()[:200], os.getpid(), time.time_ns() // 1_000_000)
    while True:
        task = ClaimedTask(wiring, fold.top + 1, own.nonce, transactional)
        message = encode_claim(task.header(ChangelogType.CLAIM)._replace(seq=0), own)
        (sent,) = append(log, task, [message], sync=True, may_lose=True)
        end, behind = log.bounds(wiring.changelog)[1], sent.offset + 1
        lost = sent.fenced
        for row in rows(log, wiring.changelog, fold.next_offset, end if lost else behind, acknowledged=behind):
            lost = lost or (row.offset == sent.offset and fold.top >= task.generation)
            fold.feed(row.offset, row.value or b"")
        if not lost:
            break
    if fold.next_offset <= sent.offset:
        raise TransientError(
            f"{wiring.changelog}: the own claim at offset {sent.offset} cannot be read yet: try again",
            partition=wiring.changelog,
            offset=sent.offset,
        )
    task = replace(task, begin=sent.offset + 1 + sent.trailing, time_ms=sent.append_time_ms)
    if settle and fold.in_doubt is not None:
        outcome = Outcome(fold.in_doubt, counts=False)
        if wiring.changelog != wiring.outcome_changelog:
            decided = find_outcome(log, wiring.outcome_changelog, outcome.bulk_write_id)
            if decided is None:
                raise _fenced(task, f"another process is settling the bulk write {outcome.bulk_write_id}")
            outcome = outcome._replace(counts=decided)
        append(log, task, [encode_outcome(task.header(ChangelogType.OUTCOME), outcome)], sync=True)
        task = replace(task, next_seq=task.next_seq + 1)
        fold.settle(*outcome)
    went_on = bool(fold.since.decisions or fold.since.released)
    task = replace(task, base=fold.last, base_offset=fold.last_offset, rollback_history=fold.rollback_history)
    return replace(task, lease=fold.since.lease, went_on=went_on)


def append(
    log: Log,
    task: ClaimedTask,
    messages: Sequence[bytes],
    *,
    sync: bool = False,
    may_lose: bool = False,
    outputs: Sequence[ExternalRecord] = (),
) -> list[Delivery]:
    """Append messages to a task's changelog and wait for them; ``outputs`` become visible with the last (S1).

    Raises Fenced if the log refuses them because of a newer generation, TransientError if it does not answer.
    """
    last = len(messages) - 1
    sync = sync or task.transactional  # where this process writes in transactions, only that ends one
    try:
        for token, message in enumerate(messages):
            ends = token == last
            log.send(
                0,
                token + 1,
                task.changelog,
                message,
                fence=task.generation,
                sync=sync and ends,
                outputs=outputs if ends else (),
            )
    except TransientError:  # its transactional id was taken over: the changelog tells by which process (S1)
        if task.begin:
            check = TailCheck(task.changelog, NOWHERE, task.generation, task.begin)
            _look(log, task, check, task.begin, log.bounds(task.changelog)[1])
        raise
    found: dict[int, Delivery] = {}
    by = time.monotonic() + ACK_S_MAX
    while len(found) <= last:
        for delivery in log.poll():
            found[delivery.token] = delivery
        if len(found) <= last:
            if time.monotonic() > by:
                raise TransientError(
                    f"{task.changelog}: no answer to {last + 1} messages in {ACK_S_MAX:.0f} s", partition=task.changelog
                )
            log.wait(50)
    sent = [found[token + 1] for token in range(last + 1)]
    if not may_lose and any(delivery.fenced for delivery in sent):
        raise _fenced(task, "the log refuses its messages")
    return sent


def verify(log: Log, task: ClaimedTask, begin: int, own: int) -> int:
    """Return the offset behind the own message at ``own``, with nothing newer from ``begin`` up to it (C3).

    Raises Fenced if there is something newer; Halted, TransientError if the own message cannot be read.
    """
    check = TailCheck(task.changelog, own, task.generation, begin)
    _look(log, task, check, begin, own + 1, acknowledged=own + 1)
    check.done()
    return own + 1


def _look(log: Log, task: ClaimedTask, check: TailCheck, begin: int, end: int, *, acknowledged: int = 0) -> None:
    try:
        for row in rows(log, task.changelog, begin, end, acknowledged=acknowledged):
            newer = check.row(row.offset, row.value or b"")
            if newer is not None:
                raise _fenced(task, f"generation {newer} claimed at offset {row.offset}")
    except OffsetOutOfRange as error:
        raise _fenced(task, f"its changelog was trimmed: {error}") from error


def _fenced(task: ClaimedTask, reason: str) -> Fenced:
    return Fenced(
        f"{task.wiring.name}: {reason}; the bulk write of generation {task.generation} does not count: stop the job's "
        "workers, and run it again",
        task=task.wiring.name,
    )
