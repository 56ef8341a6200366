"""The requests of a standby: judge its store as at a start, then each commit that counts, in order (R7)."""

import re

import pytest

from grete.core.actions import Action, ApplySegment, ReadChangelog, WipeStore, WriteChangelogPosition
from grete.core.events import ChangelogRow
from grete.core.lifecycle import StandbyPhase
from grete.core.standby import StandbyCore
from grete.errors import Halted
from grete.halts import HaltCode
from grete.protocol.changelog_position import ChangelogPosition
from grete.protocol.ids import TopicPartition
from tests.core.test_changelog_fold import BASE, Writer

CHANGELOG = TopicPartition("j.b.changelog", 0)


def position(offset: int, checkpoint_id: int, generation: int = 1) -> ChangelogPosition:
    """Return the changelog position of a store that has the commit of a Writer."""
    return ChangelogPosition(offset, generation, checkpoint_id, BASE.nonce)


def chain(checkpoints: int = 3) -> list[bytes]:
    """Return claim, commit of 0 at offset 1, then data and commit of checkpoints 1, 2, 3 at offsets 3, 5, 7."""
    writer = Writer(1)
    messages = [writer.claim(), writer.commit(0)]
    for checkpoint_id in range(1, checkpoints + 1):
        messages += [writer.data(b"%d" % checkpoint_id), writer.commit(checkpoint_id, previous=checkpoint_id - 1)]
    return messages


def fed(core: StandbyCore, messages: list[bytes], begin: int) -> list[Action]:
    """Tell a standby the messages from an offset on; return what it asks for."""
    return [
        action
        for offset in range(begin, len(messages))
        for action in core.row(ChangelogRow(offset, 0, messages[offset]))
    ]


def test_an_empty_store_is_filled_from_the_genesis() -> None:
    """It looks for a round start at the end first; each commit is then a segment and its changelog position."""
    core, messages = StandbyCore("b-0", CHANGELOG), chain()
    assert core.begin(None, (0, 8)) == [WipeStore(), ReadChangelog(0)]
    assert (fed(core, messages, 0), core.phase, core.whole) == ([], StandbyPhase.PROBING, False)
    assert core.end() == [ReadChangelog(0)]
    assert core.whole  # nothing was read, and that is all there is at the genesis
    assert fed(core, messages, 0) == [
        WriteChangelogPosition(position(1, 0)),
        ApplySegment((messages[2],), 3),
        WriteChangelogPosition(position(3, 1)),
        ApplySegment((messages[4],), 5),
        WriteChangelogPosition(position(5, 2)),
        ApplySegment((messages[6],), 7),
        WriteChangelogPosition(position(7, 3)),
    ]
    assert (core.end(), core.phase) == ([], StandbyPhase.FOLLOWING)


def test_a_store_goes_on_from_its_position() -> None:
    """Its commit is still in the log: only what is behind it is asked for, and nothing is wiped (R1)."""
    core, messages = StandbyCore("b-0", CHANGELOG), chain()
    assert core.begin(position(5, 2), (2, 8)) == [ReadChangelog(5)]
    assert fed(core, messages, 5) == [ApplySegment((messages[6],), 7), WriteChangelogPosition(position(7, 3))]


@pytest.mark.parametrize(
    "other",
    [position(5, 2, generation=2), position(5, 9), position(4, 2), position(5, 2)._replace(nonce=bytes(15) + b"x")],
    ids=["generation", "checkpoint", "no commit", "nonce"],
)
def test_a_store_of_something_else_is_wiped(other: ChangelogPosition) -> None:
    """A position that names another message or none makes the standby restore (R1)."""
    core = StandbyCore("b-0", CHANGELOG)
    core.begin(other, (0, 8))
    assert core.row(ChangelogRow(other.offset, 0, chain()[other.offset])) == [WipeStore(), ReadChangelog(0)]
    assert core.phase is StandbyPhase.PROBING


def test_a_position_at_which_nothing_comes_is_of_something_else() -> None:
    """In a log with transactions there may be no message at an offset: the end comes first (R1)."""
    core = StandbyCore("b-0", CHANGELOG)
    core.begin(position(5, 2), (0, 8))
    assert core.end() == [WipeStore(), ReadChangelog(0)]


def test_a_store_ahead_of_the_log_stops_it() -> None:
    """The log has lost messages: to wipe the store would destroy what may be the only copy of them."""
    core = StandbyCore("b-0", CHANGELOG)
    with pytest.raises(Halted, match=r"b-0: its store holds the commit at offset 8, but .* ends at 8") as raised:
        core.begin(position(8, 4), (0, 8))
    assert raised.value.code is HaltCode.LOG_LOST
    core.stop()
    assert core.phase is StandbyPhase.STOPPED


def test_within_the_log_no_position_comes_before_a_whole_round() -> None:
    """It begins at a round start; until a round has ended, a store with what was read is no state (R1, K2)."""
    writer = Writer(1)
    messages = [writer.claim(), writer.commit(0), writer.data(b"a"), writer.commit(1, previous=0)]
    messages += [writer.data(b"b"), writer.commit(2, previous=1)]
    core = StandbyCore("b-0", CHANGELOG)
    assert core.begin(position(1, 0), (3, 6)) == [WipeStore(), ReadChangelog(3)]  # trimmed beyond it
    fed(core, messages, 3)
    assert core.end() == [ReadChangelog(3)]
    assert fed(core, messages, 3) == [ApplySegment((messages[4],), 5)]
    assert (core.phase, core.whole) == (StandbyPhase.RESTORING, False)
    messages += [writer.data(b"a"), writer.commit(3, previous=2, cursor=b"")]
    assert fed(core, messages, 6) == [ApplySegment((messages[6],), 7), WriteChangelogPosition(position(7, 3))]
    assert (core.phase, core.whole) == (StandbyPhase.FOLLOWING, True)


def test_a_trim_that_overtakes_it_begins_a_restore() -> None:
    """While it follows, while it restores, and while it looks for a round start (K2)."""
    core, messages = StandbyCore("b-0", CHANGELOG), chain()
    core.begin(position(3, 1), (0, 8))
    core.row(ChangelogRow(3, 0, messages[3]))
    assert core.trimmed((5, 8)) == [WipeStore(), ReadChangelog(5)]
    assert core.trimmed((6, 8)) == [WipeStore(), ReadChangelog(6)]
    assert core.end() == [ReadChangelog(6)]
    assert core.trimmed((7, 8)) == [WipeStore(), ReadChangelog(7)]


def test_a_history_that_does_not_go_on_from_what_was_read_stops_it() -> None:
    """A log that loses messages and grows again must not be mixed with what it was before."""
    core, writer = StandbyCore("b-0", CHANGELOG), Writer(2)
    core.begin(None, (0, 0))
    core.end()
    fed(core, chain(1), 0)
    core.row(ChangelogRow(7, 0, writer.claim()))
    with pytest.raises(Halted, match=re.escape("checkpoint 5 follows checkpoint 4, and the last one")) as raised:
        core.row(ChangelogRow(8, 0, writer.commit(5, previous=4)))
    assert (raised.value.code, raised.value.offset) == (HaltCode.LOG_LOST, 8)


@pytest.mark.parametrize("counts", [True, False])
def test_a_bulk_write_in_doubt_waits_for_its_outcome(counts: bool) -> None:
    """Neither its data nor its position is asked for before (1.8)."""
    core, writer = StandbyCore("b-0", CHANGELOG), Writer(2)
    core.begin(None, (0, 0))
    core.end()
    messages = chain(1)
    messages += [writer.claim(), writer.data(b"b"), writer.commit(2, previous=1, bulk_write_id="r")]
    assert fed(core, messages, 0)[-1] == WriteChangelogPosition(position(3, 1))
    messages.append(writer.outcome(counts=counts))
    expected = [ApplySegment((messages[5],), 6), WriteChangelogPosition(position(6, 2, generation=2))]
    assert fed(core, messages, 7) == (expected if counts else [])


@pytest.mark.parametrize("follows", [True, False])
def test_what_follows_a_bulk_write_proves_its_outcome(follows: bool) -> None:
    """The next commit names it as the one before it, or its predecessor (1.8)."""
    core, bulk, later = StandbyCore("b-0", CHANGELOG), Writer(2), Writer(3)
    core.begin(None, (0, 0))
    core.end()
    messages = [*chain(1), bulk.claim(), bulk.data(b"b"), bulk.commit(2, previous=1, bulk_write_id="r")]
    messages += [later.claim(), later.data(b"c"), later.commit(3, previous=2 if follows else 1)]
    applied = [messages[5], messages[8]] if follows else [messages[8]]
    assert fed(core, messages, 0)[-2:] == [
        ApplySegment(tuple(applied), 9),
        WriteChangelogPosition(position(9, 3, generation=3)),
    ]
