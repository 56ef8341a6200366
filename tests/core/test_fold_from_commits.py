"""A reader that begins at a valid commit finds what a reader of the whole changelog finds (C2, R1, K2, 1.8)."""

import zlib
from dataclasses import dataclass, field

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from grete.core.changelog.changelog_fold import ChangelogFold, Segment
from grete.execution.changelog.changelog_writer import find_outcome
from grete.logs.memory import MemoryLog, MemoryLogData
from grete.ports import LogRow
from grete.protocol.changelog import (
    ChangelogHeader,
    ChangelogType,
    Claim,
    InputDecision,
    Outcome,
    decode_changelog_header,
    encode_claim,
    encode_data,
    encode_input_decision,
    encode_outcome,
)
from grete.protocol.commit import Commit, decode_commit, encode_commit
from grete.protocol.ids import RollbackEntry, TopicPartition
from grete.state.read.checkpoints.commits import LatestCommit, latest_of
from tests.core.test_changelog_fold import BASE

NAME = TopicPartition("j.b.changelog", 0)
DATA, COMMIT = ChangelogType.DATA, ChangelogType.COMMIT
FIELDS = {name: getattr(BASE, name) for name in BASE.__struct_fields__}


@dataclass
class Process:
    """A worker, or the coordinator of a bulk write and its attempts, with the commit that it found at its claim."""

    generation: int
    is_run: bool
    previous: int
    rollback_history: tuple[RollbackEntry, ...]
    committed: bool = False
    seqs: dict[int, int] = field(default_factory=dict)
    open: dict[int, list[bytes]] = field(default_factory=dict)

    def header(self, kind: ChangelogType, attempt: int = 0) -> ChangelogHeader:
        """Return the header of its next message, or of the next one of an attempt."""
        seq = self.seqs.get(attempt, 1)
        self.seqs[attempt] = seq + 1
        return ChangelogHeader(kind, self.generation, seq, attempt)


class Changelog:
    """A changelog that processes write in any order; each that claims it goes on from the last commit that counts."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.processes: list[Process] = []
        self.outcomes: dict[str, bool] = {}
        self.has_late_copy = False  # of a commit, behind the claim of a later process

    def claim(self, choice: int) -> None:
        """A process claims the task; every second one is a bulk write. A rival's claim may have lost the race."""
        fold = ChangelogFold(NAME, 0)
        for offset, message in enumerate(self.messages):
            fold.feed(offset, message)
        generation = fold.top + 1
        self.messages.append(_claim(generation, len(self.messages)))
        fold.feed(len(self.messages) - 1, self.messages[-1])
        if choice % 3 == 0:
            self.messages.append(_claim(generation, len(self.messages)))
        in_doubt = fold.in_doubt
        if in_doubt is not None:
            fold.settle(in_doubt, self.outcomes[in_doubt])
        previous = -1 if fold.last is None else fold.last.checkpoint_id
        is_run = choice % 2 == 1 and not fold.since.decisions  # decisions are not written over
        process = Process(generation, is_run, previous, fold.rollback_history)
        self.processes.append(process)
        if in_doubt is not None and choice % 5:  # else the next commit proves it
            self.messages.append(
                encode_outcome(process.header(ChangelogType.OUTCOME), Outcome(in_doubt, counts=self.outcomes[in_doubt]))
            )

    def data(self, who: int, choice: int) -> None:
        """A worker writes data; of a bulk write one of three attempts does, also when all is over."""
        process = self.processes[who % len(self.processes)]
        attempt = 7 + choice % 3 if process.is_run else 0
        message = encode_data(process.header(DATA, attempt), [0], [b"%d" % choice], [b"%d" % attempt])
        process.open.setdefault(attempt, []).append(message)
        self.messages.append(message)

    def decide(self, who: int, choice: int) -> None:
        """A worker decides on a record."""
        process = self.processes[who % len(self.processes)]
        if not process.is_run:
            header = process.header(ChangelogType.INPUT_DECISION)
            self.messages.append(encode_input_decision(header, InputDecision("t", 0, choice, 1, 1, 1)))

    def commit(self, who: int, choice: int) -> None:
        """A process commits; a bulk write once, naming one of its attempts, with an outcome behind it or without."""
        process = self.processes[who % len(self.processes)]
        if process.is_run and process.committed:
            return
        attempt = 7 + choice % 3 if process.is_run else 0
        closed, digest = process.open.pop(attempt, []), 0
        for message in closed:
            digest = zlib.crc32(message, digest)
        # of a process that sleeps it may be a number that its successor takes, too
        checkpoint_id = max(process.previous, 0) + 1 + choice % 3
        bulk_write_id = f"run-{process.generation}" if process.is_run else None
        changed = {
            "generation": process.generation,
            "checkpoint_id": checkpoint_id,
            "previous": process.previous,
            "rollback_history": process.rollback_history,
            "data_count": len(closed),
            "data_digest": digest,
            "attempt": attempt,
            "bulk_write_id": bulk_write_id,
            "cursor": b"" if choice % 4 == 0 else b"k",
        }
        self.messages.append(encode_commit(process.header(COMMIT), Commit(**FIELDS | changed)))
        process.committed = True
        if process is self.processes[-1]:  # else it finds that it was replaced (C3), and builds on nothing of it
            process.previous = checkpoint_id
        if bulk_write_id is not None:
            self.outcomes[bulk_write_id] = choice % 4 != 1
            if choice % 2:
                outcome = Outcome(bulk_write_id, self.outcomes[bulk_write_id])
                self.messages.append(encode_outcome(process.header(ChangelogType.OUTCOME), outcome))

    def outcome(self, who: int, _: int) -> None:
        """A bulk write tells its outcome, later than at once, or again."""
        process = self.processes[who % len(self.processes)]
        if process.is_run and process.committed:
            bulk_write_id = f"run-{process.generation}"
            outcome = Outcome(bulk_write_id, self.outcomes[bulk_write_id])
            self.messages.append(encode_outcome(process.header(ChangelogType.OUTCOME), outcome))

    def repeat(self, choice: int) -> None:
        """The log holds one more copy of a message."""
        copy = self.messages[choice % len(self.messages)]
        header = decode_changelog_header(copy)
        top = max(decode_changelog_header(message).generation for message in self.messages)
        self.has_late_copy |= header.type is COMMIT and header.generation < top
        self.messages.append(copy)


def _claim(generation: int, nonce: int) -> bytes:
    return encode_claim(
        ChangelogHeader(ChangelogType.CLAIM, generation, 0, 0), Claim(nonce.to_bytes(16, "big"), "h", 1, 0)
    )


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["claim", "data", "data", "data", "commit", "outcome", "decide", "repeat"]),
        st.integers(0, 3),
        st.integers(0, 59),
    ),
    max_size=50,
)
# a bulk write with two attempts; the one that lost goes on behind the commit, its outcome, and a worker's commit
LOSING = [("claim", 0, 1), ("data", 0, 0), ("data", 0, 1), ("commit", 0, 3), ("data", 0, 1), ("data", 0, 1)]


def written(events: list[tuple[str, int, int]]) -> Changelog:
    """Return the changelog that some events lead to."""
    log = Changelog()
    for what, who, choice in events:
        if what == "claim" and len(log.processes) < 6:
            log.claim(choice)
        elif what == "repeat" and log.messages:
            log.repeat(choice)
        elif log.processes and what in ("data", "decide", "commit", "outcome"):
            getattr(log, what)(len(log.processes) - 1 - who, choice)
    return log


def by_definition(log: Changelog) -> dict[int, tuple[bytes, ...]]:
    """Return offset → data of the commits that count, as C2, R1 and 1.8 are written."""
    headers = [decode_changelog_header(message) for message in log.messages]
    found: dict[int, tuple[bytes, ...]] = {}
    for at, header in enumerate(headers):
        before = headers[:at]
        if header.type is not COMMIT or header in before or any(h.generation > header.generation for h in before):
            continue
        commit = decode_commit(log.messages[at])
        if commit.bulk_write_id is not None and not log.outcomes[commit.bulk_write_id]:
            continue
        own = [i for i, h in enumerate(before) if h.generation == header.generation and h not in before[:i]]
        begin = max((i for i in own if headers[i].type is COMMIT), default=-1)
        data = (i for i in own if i > begin and headers[i].type is DATA and headers[i].attempt == commit.attempt)
        found[at] = tuple(log.messages[i] for i in data)
    return found


def fold(log: Changelog, start: int) -> tuple[ChangelogFold, list[Segment]]:
    """Fold a changelog from an offset, and tell it the outcome of its last bulk write, as task (0, 0) would."""
    into = ChangelogFold(NAME, start)
    fed = [into.feed(offset, message) for offset, message in enumerate(log.messages) if offset >= start]
    if into.in_doubt is not None:
        fed.append(into.settle(into.in_doubt, log.outcomes[into.in_doubt]))
    return into, [segment for segment in fed if segment is not None]


@settings(max_examples=400, deadline=None)
@given(EVENTS)
@example(LOSING)
@example([*LOSING, ("claim", 0, 0), ("data", 0, 1), ("commit", 0, 0), ("data", 1, 1)])
@example([("claim", 0, 1), ("data", 0, 26), ("commit", 0, 2), ("claim", 0, 5), ("commit", 0, 1)])  # and another, undone
def test_reading_from_each_commit_gives_what_the_whole_log_gives(
    events: list[tuple[str, int, int]],
) -> None:
    """State, validity, rollback history and generation do not depend on where a reader begins (C2, R1, K2, 1.8)."""
    log = written(events)
    expected = by_definition(log)
    whole, segments = fold(log, 0)
    assert [m for s in segments for m in s.messages] == [m for data in expected.values() for m in data]
    for start in expected:
        into, found = fold(log, start)
        data = [m for at, messages in expected.items() if at > start for m in messages]
        assert [message for segment in found for message in segment.messages] == data
        assert found[0].offset == start
        for name in (
            "last",
            "last_offset",
            "top",
            "rollback_history",
            "in_doubt",
            "next_offset",
        ):
            assert getattr(into, name) == getattr(whole, name), name
        assert (into.since.decisions, into.since.released) == (whole.since.decisions, whole.since.released)


@settings(max_examples=400, deadline=None)
@given(EVENTS)
@example(LOSING)
@example([("claim", 0, 1), ("commit", 0, 0), ("claim", 0, 35), ("commit", 0, 0)])  # a bulk write on another's commit
def test_who_looks_for_the_last_commit_only_agrees(events: list[tuple[str, int, int]]) -> None:
    """A look back from the end judges commits by itself: it finds the fold's last one, from wherever it begins (C2)."""
    log = written(events)
    into = ChangelogFold(NAME, 0)
    for offset, message in enumerate(log.messages):
        into.feed(offset, message)
    for start in (0, *(at for at in by_definition(log) if at <= into.last_offset)):
        latest = LatestCommit(NAME)
        for offset, message in enumerate(log.messages):
            if offset >= start:
                latest.take(LogRow(offset, 0, 0, None, message, None))
        assert latest.top == into.top
        if into.last is None:
            assert latest.found is None
        else:
            assert latest.found is not None
            assert (latest.found.offset, latest.found.commit) == (into.last_offset, into.last)


def as_log(log: Changelog, start: int = 0) -> tuple[MemoryLog, TopicPartition]:
    """Return a log that holds a changelog, trimmed before ``start``."""
    data = MemoryLogData(lambda: 0)
    connection = MemoryLog(data)
    connection.create_topic(NAME.topic, 1)
    for message in log.messages:
        data.append(NAME, None, message, 0, None)
    connection.trim(NAME, start)
    return connection, NAME


@settings(max_examples=400, deadline=None)
@given(EVENTS)
@example(LOSING)
@example([("claim", 0, 0), ("claim", 0, 1), ("commit", 0, 1), ("repeat", 0, 3)])  # rolled back, and its commit again
@example([("claim", 0, 0), ("claim", 0, 1), ("commit", 0, 0), *[("claim", 0, 0)] * 2, ("commit", 1, 0)])  # a proof
def test_a_look_back_from_the_end_agrees(events: list[tuple[str, int, int]]) -> None:
    """A look back finds the same, however far it goes and wherever the log was trimmed (C2, K2).

    One exception: a commit which does not count may prove to it alone that a bulk write's commit counts. And it takes
    a copy of a commit behind a later claim for the commit: no log here makes one, as producers number what they send.
    """
    log = written(events)
    assume(not log.has_late_copy)
    into = ChangelogFold(NAME, 0)
    for offset, message in enumerate(log.messages):
        into.feed(offset, message)
    for start in (0, *(at for at in by_definition(log) if at <= into.last_offset)):
        latest = latest_of(*as_log(log, start))
        found = (-1, None) if latest.found is None else (latest.found.offset, latest.found.commit)
        assert latest.top == into.top
        if into.in_doubt is not None and latest.in_doubt is None:  # it knows more: a commit behind it does not count
            assert latest.found is not None
            assert (latest.found.commit.bulk_write_id, log.outcomes[into.in_doubt]) == (into.in_doubt, True)
            continue
        assert found == (into.last_offset, into.last)
        in_doubt = None if latest.in_doubt is None else latest.in_doubt.commit.bulk_write_id
        assert in_doubt == into.in_doubt


class _Asked(ChangelogFold):
    """A fold that keeps each outcome that it takes for valid."""

    def __init__(self) -> None:
        super().__init__(NAME, 0)
        self.outcomes: list[Outcome] = []

    def settle(self, bulk_write_id: str, counts: bool) -> Segment | None:
        """Keep it."""
        self.outcomes.append(Outcome(bulk_write_id, counts))
        return super().settle(bulk_write_id, counts)


@settings(max_examples=200, deadline=None)
@given(EVENTS)
@example([("claim", 0, 1), ("commit", 0, 3), ("outcome", 0, 0)])
@example([("claim", 0, 1), ("commit", 0, 4), ("claim", 0, 2), ("outcome", 1, 0)])  # behind a higher generation
def test_who_looks_for_an_outcome_agrees(events: list[tuple[str, int, int]]) -> None:
    """A look for the outcome of a bulk write finds the first that the fold takes for valid, and else none (C2, 1.8)."""
    log = written(events)
    connection, changelog = as_log(log)
    for bulk_write_id in log.outcomes:
        into, valid = _Asked(), list[bool]()
        for offset, message in enumerate(log.messages):
            into.outcomes = []
            into.feed(offset, message)
            if decode_changelog_header(message).type is ChangelogType.OUTCOME:  # a commit only proves one
                valid += [outcome.counts for outcome in into.outcomes if outcome.bulk_write_id == bulk_write_id]
        assert find_outcome(connection, changelog, bulk_write_id) is (valid[0] if valid else None)


def test_a_losing_attempt_is_rolled_back_behind_the_commit() -> None:
    """It is not asked for the ChangelogSeq that a reader from there cannot know, and nothing of it is kept (C2)."""
    log = written(LOSING)
    (commit,) = by_definition(log)
    for start in (0, commit):
        into, _ = fold(log, start)
        assert not into._open.segments
        assert into.invalid_messages == 2 + (1 if start == 0 else 0)
        assert into.last is not None
        assert into.last.attempt == 7
