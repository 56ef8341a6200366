"""Reading a changelog: what is valid (C2), which data a commit closes (R1), where a reader may begin (K2)."""

import zlib
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grete.core.changelog.changelog_fold import ChangelogFold, Segment
from grete.errors import Halted
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
from grete.protocol.commit import Commit, encode_commit
from grete.protocol.ids import RollbackEntry, TopicPartition

DATA, COMMIT, CLAIM, OUTCOME = ChangelogType.DATA, ChangelogType.COMMIT, ChangelogType.CLAIM, ChangelogType.OUTCOME
BASE = Commit(1, 1, 0, -1, (), (), 0, 0, 0, b"k", 0, 0, 7, False, (), (), ())


@dataclass
class Writer:
    """One process that writes to a changelog: numbers its messages, counts and digests its data."""

    generation: int
    seq: int = 0
    count: int = 0
    digest: int = 0
    rollback_history: tuple[RollbackEntry, ...] = field(default=())

    def claim(self) -> bytes:
        """Return its claim."""
        return encode_claim(self._header(CLAIM), Claim(bytes(16), "h", self.generation, 0))

    def data(self, key: bytes = b"k") -> bytes:
        """Return a data message."""
        message = encode_data(self._header(DATA), [0], [key], [b"v"])
        self.count, self.digest = self.count + 1, zlib.crc32(message, self.digest)
        return message

    def decision(self, first_offset: int) -> bytes:
        """Return a decision on one record."""
        return encode_input_decision(
            self._header(ChangelogType.INPUT_DECISION), InputDecision("t", 0, first_offset, 1, 1, 1)
        )

    def outcome(self, *, counts: bool) -> bytes:
        """Return the outcome of the run "r"."""
        return encode_outcome(self._header(OUTCOME), Outcome("r", counts))

    def commit(
        self,
        checkpoint_id: int,
        *,
        cursor: bytes = b"k",
        wrong_digest: int = 0,
        wrong_count: int = 0,
        bulk_write_id: str | None = None,
        previous: int = -1,
    ) -> bytes:
        """Return the commit of what was written since the last."""
        fields = {name: getattr(BASE, name) for name in BASE.__struct_fields__} | {
            "generation": self.generation,
            "checkpoint_id": checkpoint_id,
            "rollback_history": self.rollback_history,
            "data_count": self.count + wrong_count,
            "data_digest": self.digest ^ wrong_digest,
            "cursor": cursor,
            "bulk_write_id": bulk_write_id,
            "previous": previous,
        }
        self.count = self.digest = 0
        return encode_commit(self._header(COMMIT), Commit(**fields))

    def _header(self, kind: ChangelogType) -> ChangelogHeader:
        self.seq += 1
        return ChangelogHeader(kind, self.generation, self.seq - 1, 0)


def fold(messages: list[bytes], start: int = 0) -> tuple[ChangelogFold, list[Segment]]:
    """Fold a changelog from an offset; return the fold and the segments that it found."""
    into = ChangelogFold(TopicPartition("j.b.changelog", 0), start)
    fed = [into.feed(offset, message) for offset, message in enumerate(messages) if offset >= start]
    return into, [segment for segment in fed if segment is not None]


def three_checkpoints() -> list[bytes]:
    """Return claim, commit of 0 at offset 1, then data and commit of checkpoints 1, 2, 3 at offsets 3, 5, 7."""
    writer = Writer(1)
    messages = [writer.claim(), writer.commit(0)]
    for checkpoint_id in (1, 2, 3):
        messages += [writer.data(b"%d" % checkpoint_id), writer.commit(checkpoint_id)]
    return messages


# --- one generation ---------------------------------------------------------------------------------------------------


def test_each_commit_closes_the_data_before_it() -> None:
    """A segment is a valid commit with its data messages, in order (R1)."""
    messages = three_checkpoints()
    into, segments = fold(messages)
    assert [(s.commit.checkpoint_id, s.offset, s.messages) for s in segments] == [
        (0, 1, ()),
        (1, 3, (messages[2],)),
        (2, 5, (messages[4],)),
        (3, 7, (messages[6],)),
    ]
    assert (into.last_offset, into.top, into.next_offset, into.invalid_messages) == (7, 1, 8, 0)


def test_an_open_tail_closes_nothing() -> None:
    """Data behind the last commit belongs to no task (R1)."""
    writer = Writer(1)
    messages = [writer.claim(), writer.data(), writer.commit(1), writer.data(), writer.data()]
    into, segments = fold(messages)
    assert (len(segments), into.last_offset) == (1, 2)


def test_an_empty_changelog_has_no_commit() -> None:
    """Nothing read: no commit, generation 0, and complete, as it begins at the genesis (R1)."""
    into, _ = fold([])
    assert (into.last, into.top, into.complete, into.rollback_history) == (None, 0, True, ())


def test_repeats_are_dropped_by_their_seq() -> None:
    """A message that an at-least-once log holds twice counts once, also if the second comes late (C2)."""
    once = three_checkpoints()
    repeated = [once[0], once[0], *once[1:4], once[2], once[3], *once[4:], once[1], once[7]]
    into, segments = fold(repeated)
    assert [(s.commit.checkpoint_id, s.messages) for s in segments] == [
        (s.commit.checkpoint_id, s.messages) for s in fold(once)[1]
    ]
    assert into.last == fold(once)[0].last


@pytest.mark.parametrize("lost", [2, 3, 4, 5, 6])
def test_a_lost_message_halts(lost: int) -> None:
    """ChangelogSeq is contiguous from the claim: a gap is a loss, whatever was lost (1.2)."""
    messages = three_checkpoints()
    del messages[lost]
    with pytest.raises(Halted, match=rf"j\.b\.changelog\[0\], offset {lost}: ChangelogSeq {lost + 1} after {lost - 1}"):
        fold(messages)


@pytest.mark.parametrize("wrong", [{"wrong_digest": 1}, {"wrong_count": 1}, {"wrong_count": -1}])
def test_a_commit_that_disagrees_with_its_data_halts(wrong: dict[str, int]) -> None:
    """Count and digest must be those of the data found: else the log is damaged (R1)."""
    writer = Writer(1)
    messages = [writer.claim(), writer.data(), writer.data(), writer.commit(1, **wrong)]  # type: ignore[arg-type]  # mypy takes each keyword for each argument
    with pytest.raises(Halted, match=r"offset 3: commit of checkpoint 1 closes \d data messages with digest"):
        fold(messages)


def test_checkpoints_grow() -> None:
    """A commit of a checkpoint that is not above the last is no commit of this protocol (1.1)."""
    writer = Writer(1)
    with pytest.raises(Halted, match="commit of checkpoint 4 after 4"):
        fold([writer.claim(), writer.commit(4), writer.commit(4)])


def test_offsets_grow() -> None:
    """A log that goes backwards while it is read cannot be folded (port contract 4)."""
    into, _ = fold(three_checkpoints())
    with pytest.raises(Halted, match="read offset 3 after 7"):
        into.feed(3, three_checkpoints()[3])


@pytest.mark.parametrize("damaged", [b"", b"\x19", b"\x00" * 40, b"\x11" * 40, b"\x29" + bytes(40)])
def test_damage_halts_with_its_place(damaged: bytes) -> None:
    """A message that is none of ours is refused naming topic, partition and offset (1.2)."""
    with pytest.raises(Halted, match=r"j\.b\.changelog\[0\], offset 8: .*the changelog is damaged"):
        fold([*three_checkpoints(), damaged])


def test_a_damaged_commit_halts_with_its_place() -> None:
    """Its header is fine, its body is not (1.2)."""
    messages = three_checkpoints()
    messages[7] = messages[7][:-5]
    with pytest.raises(Halted, match="offset 7"):
        fold(messages)


# --- several generations ----------------------------------------------------------------------------------------------


def test_a_new_generation_makes_invalid_the_open_tail() -> None:
    """Uncommitted messages of the old generation, and all its later ones, are rolled back (C2)."""
    old, new = Writer(1), Writer(2, rollback_history=(RollbackEntry(1, 0), RollbackEntry(2, 1)))
    messages = [old.claim(), old.data(), old.commit(1), old.data(b"lost")]
    messages += [new.claim(), new.data(b"new"), old.commit(2), new.commit(3)]
    into, segments = fold(messages)
    assert [(s.commit.generation, s.commit.checkpoint_id) for s in segments] == [(1, 1), (2, 3)]
    assert segments[1].messages == (messages[5],)
    assert (into.invalid_messages, into.rollback_history) == (2, ((1, 0), (2, 1)))


@pytest.mark.parametrize("kind", ["claim", "data"])
def test_a_message_of_any_type_ends_the_older_generations(kind: str) -> None:
    """Claims may have been trimmed: not only they count (C2)."""
    old, new = Writer(1), Writer(5)
    claim = new.claim()
    messages = [old.claim(), old.data()]
    messages += [claim] if kind == "claim" else [encode_data(ChangelogHeader(DATA, 5, 0, 0), [], [], [])]
    into, segments = fold([*messages, old.commit(1)])
    assert (segments, into.top) == ([], 5)


def test_a_claim_enters_the_rollback_history_with_what_it_found() -> None:
    """The new incarnation goes back to the last valid commit at its claim; superfluous entries go (R2, R3)."""
    first, second = Writer(1), Writer(2)
    into, _ = fold([first.claim(), second.claim()])
    assert into.rollback_history == ((2, 0),)
    writer = Writer(1, rollback_history=(RollbackEntry(1, 0),))
    into, _ = fold([writer.claim(), writer.commit(4), Writer(3).claim()])
    assert into.rollback_history == ((1, 0), (3, 4))


# --- where reading may begin ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [1, 3, 5, 7])
def test_a_trimmed_head_is_read_from_a_commit(start: int) -> None:
    """The commit at the start gives the base of ChangelogSeq; its own data lies before (K2)."""
    whole, _ = fold(three_checkpoints())
    into, segments = fold(three_checkpoints(), start)
    assert (into.last, into.last_offset, into.rollback_history, into.top) == (whole.last, 7, whole.rollback_history, 1)
    assert into.base is not None
    assert into.base.checkpoint_id == (start - 1) // 2
    assert segments[0].messages == ()


def test_a_late_repeat_behind_a_trimmed_head_is_still_one() -> None:
    """Without the base's seq it would look new (K2)."""
    messages = three_checkpoints()
    _, segments = fold([*messages, messages[2], messages[3]], 5)
    assert [s.commit.checkpoint_id for s in segments] == [2, 3]


def test_a_restore_is_complete_from_the_genesis_or_after_a_round() -> None:
    """From anywhere else a rewrite round must end after the start; the base's own round does not count (R1)."""
    writer = Writer(1)
    messages = [
        writer.claim(),
        writer.commit(0),
        writer.commit(1, cursor=b""),
        writer.commit(2),
        writer.commit(3, cursor=b""),
    ]
    assert fold(messages[:3])[0].complete
    assert not fold(messages[:4], 2)[0].complete
    assert fold(messages, 2)[0].complete
    assert not fold([*messages[:4], messages[2]], 2)[0].complete  # a repeat of the base


# --- law --------------------------------------------------------------------------------------------------------------

EVENTS = st.lists(
    st.tuples(st.sampled_from(["claim", "data", "data", "commit", "repeat"]), st.integers(0, 3), st.integers(0, 50)),
    max_size=40,
)


def history(events: list[tuple[str, int, int]]) -> list[bytes]:
    """Return a changelog of up to four processes, dead or alive, that write in any order, with late repeats."""
    writers: list[Writer] = []
    messages: list[bytes] = []
    checkpoint_id = 0
    for what, who, which in events:
        if what == "claim" and len(writers) < 4:
            writers.append(Writer(len(writers) * 2 + 1))
            messages.append(writers[-1].claim())
        elif what == "repeat" and messages:
            messages.append(messages[which % len(messages)])
        elif writers and what in ("data", "commit"):
            writer = writers[who % len(writers)]
            checkpoint_id += what == "commit"
            messages.append(writer.data(b"%d" % which) if what == "data" else writer.commit(checkpoint_id))
    return messages


def by_definition(messages: list[bytes]) -> list[tuple[int, tuple[bytes, ...]]]:
    """Return offset and data of the valid commits, as C2 and R1 are written: nothing clever."""
    headers = [decode_changelog_header(message) for message in messages]
    valid = [all(h.generation <= header.generation for h in headers[:at]) for at, header in enumerate(headers)]
    first = [header not in headers[:at] for at, header in enumerate(headers)]
    found, data = [], list[bytes]()
    for at, (header, message) in enumerate(zip(headers, messages, strict=True)):
        if header.type is CLAIM and valid[at] and first[at]:
            data = []
        if valid[at] and first[at] and header.type is DATA:
            data.append(message)
        if valid[at] and first[at] and header.type is COMMIT:
            found.append((at, tuple(data)))
            data = []
    return found


@settings(max_examples=60)
@given(EVENTS)
def test_the_fold_finds_what_the_definition_says(events: list[tuple[str, int, int]]) -> None:
    """For any history of claims, data, commits and repeats: the valid commits and their data (C2, R1)."""
    messages = history(events)
    expected = by_definition(messages)
    _, segments = fold(messages)
    assert [(s.offset, s.messages) for s in segments] == expected


@settings(max_examples=60)
@given(EVENTS, st.integers(0, 100))
def test_validity_never_changes_once_read(events: list[tuple[str, int, int]], cut: int) -> None:
    """A later reader finds valid what a reader of a prefix found valid: log order alone decides (C2)."""
    messages = history(events)
    prefix = messages[: cut % (len(messages) + 1)]
    assert fold(messages)[1][: len(fold(prefix)[1])] == fold(prefix)[1]


@settings(max_examples=60)
@given(EVENTS)
def test_reading_from_any_valid_commit_gives_the_same(events: list[tuple[str, int, int]]) -> None:
    """Redo starts at a changelog position or at a base (R1, K2).

    Last commit, rollback history and generation are those of the whole log.
    """
    messages = history(events)
    whole, segments = fold(messages)
    for at in [segment.offset for segment in segments]:
        into, found = fold(messages, at)
        assert (into.last, into.last_offset, into.top) == (whole.last, whole.last_offset, whole.top)
        assert [s.offset for s in found] == [s.offset for s in segments if s.offset >= at]
