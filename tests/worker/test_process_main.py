"""The start of a worker under a supervisor."""

from framework.logs.memory import MemoryLog, MemoryLogData
from framework.logs.patience import Patience
from framework.worker.process_main import await_inputs
from tasks.word_count import job


class KnowsLate(MemoryLog):
    """A broker that is asked three times before it knows a topic."""

    asked = 0

    def partitions(self, topic: str) -> int | None:
        """Return None twice."""
        self.asked += 1
        return None if self.asked < 3 else 1


def test_a_topic_that_the_broker_does_not_know_yet_is_asked_for_again() -> None:
    """The supervisor has just made it: the worker does not halt as on a topic that is missing."""
    log = KnowsLate(MemoryLogData(lambda: 0))
    await_inputs(job, log, Patience())
    assert log.asked == 3


def test_a_worker_that_is_told_to_stop_asks_no_more() -> None:
    """The wait for a topic ends with the worker's patience."""
    log = KnowsLate(MemoryLogData(lambda: 0))
    patience = Patience()
    patience.end_within(0)
    await_inputs(job, log, patience)
    assert log.asked == 1
