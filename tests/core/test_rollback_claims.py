"""A rollback claims a new generation, and finds who else has claimed the task meanwhile (C6)."""

import pytest

from grete.core import actions as do
from grete.core import events as on
from grete.core.lifecycle import TaskStatus
from grete.errors import Fenced, Halted, OffsetOutOfRange
from grete.protocol.changelog import (
    ChangelogHeader,
    ChangelogType,
    Claim,
    encode_claim,
)
from tests.core.scenario import NONCE
from tests.core.streams import INNER, OUT
from tests.core.test_ownership import CHANGELOG, data, ready_to_commit, rolling_back, started


def test_a_commit_acknowledged_while_a_newer_claim_is_looked_for_changes_nothing() -> None:
    """In doubt the process ends either way; its successor finds the commit (C4, C5; found by the simulator)."""
    task = ready_to_commit()
    gone = OffsetOutOfRange("the input was trimmed")
    assert len(task.core.step(on.InputGone(gone))) == 1
    assert task.core.step(on.ChangelogAppended(3, 0, 0, fenced=False)) == []
    task.core.step(on.ChangelogRow(2, 0, data(2, 1)))
    with pytest.raises(OffsetOutOfRange, match="the input was trimmed"):
        task.core.step(on.ChangelogEnd(4))


def test_a_rollback_claims_the_next_generation() -> None:
    """Every rollback claims own + 1, and announces it downstream (C6)."""
    task = rolling_back()
    task.release()
    assert (task.core.status, task.core.generation) == (TaskStatus.RUNNING, 2)
    assert [(header.generation, header.checkpoint_id) for header in task.sent(OUT[0])] == [(1, 0), (2, 0)]


@pytest.mark.parametrize("foreign", [2, 3])
def test_a_foreign_claim_before_a_rollbacks_claim_fences(foreign: int) -> None:
    """g = own + 1 exactly, and any foreign claim before it ends the process: it never claims above (C6, 1.8 C1)."""
    task = rolling_back()
    task.log.claim(INNER, foreign)
    with pytest.raises(Fenced, match=f"generation {foreign}, claim at"):
        task.release()
    assert [header.generation for header in task.sent(OUT[0])] == [1]


def test_a_rollback_refused_by_the_log_fences() -> None:
    """On a log that compares, the refusal says the same (C6)."""
    task = rolling_back()
    task.log.claim(INNER, 2)
    with pytest.raises(Fenced):
        task.step(on.ChangelogAppended(-1, 0, 0, fenced=True))


def test_a_repeat_of_a_rollbacks_claim_is_not_another_ones() -> None:
    """The log may hold the claim twice and report the second: its nonce tells whose the first is (C6)."""
    task = rolling_back()
    task.log.append(CHANGELOG, task.holding(do.AppendChangelog).value)
    task.release()
    assert (task.core.status, task.core.generation) == (TaskStatus.RUNNING, 2)


def test_the_nonce_tells_own_and_foreign_claims_apart() -> None:
    """Two processes that claim the same generation differ by nonce only: the second one's read-back finds the first."""
    others = Claim(NONCE[::-1], "here", 1, 0)
    ownership = started()
    ownership.settle(4)
    message = ownership.claim_message(2)
    assert ownership.appended(6, 1) == 5
    ownership.verify_tail(5, message)
    with pytest.raises(Fenced):
        ownership.verify_tail(5, encode_claim(ChangelogHeader(ChangelogType.CLAIM, 2, 0, 0), others))


def test_damage_in_the_gap_halts_with_its_place() -> None:
    """A damaged message halts the task: it cannot be told whether it is its own (C3, 1.2)."""
    task = ready_to_commit()
    offset = task.log.append(CHANGELOG, b"\x19damaged")
    with pytest.raises(Halted, match=rf"j\.b\.changelog\[0\],? offset {offset}: .* the changelog is damaged") as told:
        task.release()
    assert (told.value.partition, told.value.offset) == (CHANGELOG, offset)
