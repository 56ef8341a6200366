"""The end of a transaction: whether it may have been asked for twice, and what became of one whose outcome is unknown.

librdkafka asks for the end of a transaction (EndTxn) again, inside of ``commit_transaction``, when it gets no answer.
The request has no number of its own: a broker that gets the first one late, while the next transaction of the same
producer is open, ends that one, in its middle. A new epoch (``init_transactions``) makes the broker refuse every older
request. It also ends what was open, so the log's end, looked at behind it, tells what is there and what never will be.
"""

from collections.abc import Sequence
from enum import Enum, auto

from grete.protocol.changelog import ChangelogType, decode_changelog_header
from grete.protocol.errors import DecodeError

RETRY_MS, RETRY_MS_MAX = 200, 1_000  # pinned: from when on a request may have been repeated depends on it
JITTER = 0.2  # by which librdkafka makes a wait shorter or longer
ONCE_S = RETRY_MS * (1 - JITTER) / 1000  # who asks again has waited for that long at least


def may_come_again(seconds: float) -> bool:
    """Tell whether an end that took that long may have been asked for twice: then one of them may be under way yet."""
    return seconds >= ONCE_S


class TransactionOutcome(Enum):
    """The part of a writer's last transaction that the changelog has, once a new epoch was taken."""

    THERE = auto()  # the transaction, as a whole
    ABSENT = auto()  # nothing: it never was, and never will be
    SPLIT = auto()  # a part of it: something else has ended it in its middle
    FOREIGN = auto()  # what another process has written: the changelog may be no longer ours


def tells(own: Sequence[bytes], value: bytes) -> bool:
    """Tell whether a message found there says anything: the data of others do not.

    Processes of a bulk write add data beside its commits (2.5), and who takes a task over writes a claim before them.
    """
    if value in own:
        return True
    try:
        return decode_changelog_header(value).type is not ChangelogType.DATA
    except DecodeError:  # the task that reads it says what is wrong with it
        return True


def outcome(own: Sequence[bytes], found: Sequence[bytes]) -> TransactionOutcome:
    """Judge by the values of all messages that a reader finds there; ``own``: those of the transaction, in order."""
    if not found:
        return TransactionOutcome.ABSENT
    if list(found) == list(own):
        return TransactionOutcome.THERE
    return TransactionOutcome.SPLIT if set(found) <= set(own) else TransactionOutcome.FOREIGN
