"""The smallest job, with the kit."""

import pytest

from grete.testing import Kit
from tasks.word_count import CountWords, job, sentences, totals

TEXT = ["to be or not to be", "that is the question", "to sleep", "to dream"]


def counted(kit: Kit) -> None:
    """Feed the text, one sentence a checkpoint."""
    for line in TEXT:
        kit.feed(sentences, "hamlet", line)
        kit.run()


def test_each_word_is_counted_and_each_total_sent() -> None:
    """State and outputs are those of a plain loop."""
    kit = Kit(job)
    counted(kit)
    assert kit.state(CountWords.counts)["to"] == 4
    assert [total for word, total in kit.pairs(totals) if word == "to"] == [1, 2, 3, 4]
    assert dict(kit.pairs(totals)) == kit.state(CountWords.counts)


@pytest.mark.parametrize("other_host", [False, True])
def test_a_crash_changes_nothing(other_host: bool) -> None:
    """Killed between processing and commit, the task counts each word once all the same (A7, R1)."""
    kit, plain = Kit(job), Kit(job)
    counted(plain)
    for line in TEXT:
        kit.feed(sentences, "hamlet", line)
        kit.process()
        kit.crash(CountWords, other_host=other_host)
        kit.run()
    assert kit.pairs(totals) == plain.pairs(totals)
    assert kit.state(CountWords.counts) == plain.state(CountWords.counts)


def test_a_crash_at_any_step_changes_nothing() -> None:
    """The output is the same after a crash at any moment, with or without the disk."""
    kit = Kit(job)
    counted(kit)
    kit.check_crashes(at_most=50)


def test_at_least_once_shows_what_the_guarantee_prevents() -> None:
    """Without the guarantee a reader gets the totals of a crashed task again."""
    kit = Kit(job, processing_guarantee="at-least-once")
    kit.feed(sentences, "hamlet", TEXT[0])
    kit.process()
    kit.crash(CountWords)
    kit.run()
    assert len(kit.pairs(totals)) == 2 * len(TEXT[0].split())
    assert kit.state(CountWords.counts)["to"] == 2
