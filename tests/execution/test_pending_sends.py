"""Sends without an acknowledgement: the watermark (A7), and the bound of waiting (B1, C4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete.errors import TransientError
from grete.execution.engine.pending_sends import CHANGELOG, PRODUCED, PendingSends


def sent(count: int) -> PendingSends:
    """Return deliveries that wait for tokens 1 to ``count``, of 10 bytes each."""
    sends = PendingSends("b-0", 1_000)
    for token in range(1, count + 1):
        sends.sent(token, 10, 0.0)
    return sends


@given(st.permutations(range(1, 9)))
def test_the_watermark_is_the_token_up_to_which_all_are_delivered(order: list[int]) -> None:
    """In whatever order deliveries are reported, every send up to the watermark is known to have succeeded (A7)."""
    sends, known = sent(8), set()
    assert sends.delivered_up_to == 0
    for token in order:
        sends.delivered(token)
        known.add(token)
        missing = set(range(1, 9)) - known
        assert sends.delivered_up_to == min(missing, default=9) - 1
        assert sends.bytes == 10 * len(missing)


@given(st.integers(-10_000_000, 10_000_000), st.integers(0, 60_000), st.integers(0, 60_000))
def test_clocks_that_differ_are_told_from_a_slow_log(ahead_ms: int, there_ms: int, back_ms: int) -> None:
    """No difference is told that is not there, whatever a commit takes to the log and back; else all but that."""
    sends = PendingSends("b-0", 1_000)
    sends.sent_other(CHANGELOG, 500.0)
    appended_ms = 1_700_000_000_000
    sends.appended(appended_ms, 500.0 + there_ms + back_ms, appended_ms + back_ms + ahead_ms)
    found_ms = sends.ahead_ms
    assert sends.empty
    assert found_ms is not None
    assert found_ms * ahead_ms >= 0
    assert abs(ahead_ms) - there_ms - back_ms <= abs(found_ms) <= abs(ahead_ms)


def test_the_watermark_is_kept_when_nothing_was_sent_since() -> None:
    """It is the last token when nothing is pending, also if tokens are not contiguous."""
    sends = PendingSends("b-0", 1_000)
    sends.sent(3, 1, 0.0)
    sends.sent(7, 1, 0.0)
    sends.delivered(7)
    assert sends.delivered_up_to == 2
    sends.delivered(3)
    assert sends.delivered_up_to == 7


def test_other_sends_do_not_move_the_watermark() -> None:
    """Claims, commits, plain records have tokens below 0; each batch of plain records counts until its answer."""
    sends = sent(1)
    sends.sent_other(CHANGELOG, 0.0)
    first, second = sends.produced(100, 0.0), sends.produced(1_000, 0.0)
    assert (sends.awaits_plain, sends.bytes) == (True, 1_110)
    sends.delivered(second)
    assert (sends.awaits_plain, sends.bytes) == (True, 110)
    sends.delivered(first)
    assert (sends.awaits_plain, sends.awaited, sends.bytes, sends.delivered_up_to) == (False, True, 10, 0)


def test_a_send_that_waits_too_long_ends_the_process() -> None:
    """After send_timeout_ms the process gives up, naming task, send, time and setting (B1)."""
    sends = sent(2)
    sends.delivered(1)
    sends.check(1_000)
    with pytest.raises(TransientError) as caught:
        sends.check(1_001)
    assert str(caught.value) == (
        "b-0: send 2 of 10 bytes is unacknowledged for 1 s (setting send_timeout_ms = 1000): is the log up?"
    )


@pytest.mark.parametrize(
    ("token", "what"), [(CHANGELOG, "a claim or commit"), (PRODUCED, r"a batch of plain records \(0 bytes\)")]
)
def test_a_commit_of_unknown_outcome_ends_the_process(token: int, what: str) -> None:
    """The process cannot tell whether it is in the log; the next claim decides (C4)."""
    sends = PendingSends("b-0", 1_000)
    sends.sent_other(token, 500.0)
    sends.check(1_500)
    with pytest.raises(TransientError, match=f"b-0: {what} is unacknowledged"):
        sends.check(1_501)
    sends.delivered(token)
    sends.check(10_000)


def test_only_the_oldest_send_counts() -> None:
    """Progress resets the patience: what is pending now was sent later (B1)."""
    sends = sent(1)
    sends.sent(2, 10, 900.0)
    sends.delivered(1)
    sends.check(1_800)
    with pytest.raises(TransientError, match="send 2"):
        sends.check(1_901)
