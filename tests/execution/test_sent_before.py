"""A start without a changelog looks for what its task has sent, beside consumers that trim it."""

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from grete import Job
from grete.execution.changelog.restorer import sent_before
from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.state.read.checkpoints.commits import all_wirings
from tests.execution.test_put_back import STREAM, Count, Split

RECORDS = 3


class Trimmed(EmbeddedLog):
    """A log whose stream is trimmed right after its bounds were asked for the first time."""

    trims = True

    def all_bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the bounds, and trim."""
        found = super().all_bounds(partitions)
        if self.trims:
            self.trims = False
            self.trim(STREAM, RECORDS)
        return found


def test_a_stream_that_is_trimmed_meanwhile_is_looked_at_again(tmp_path: Path) -> None:
    """The worker does not crash: its consumer has taken what is gone, so the task has sent."""
    with closing(Trimmed(tmp_path / "log.db")) as log:
        log.create_topic(STREAM.topic, 1)
        log.produce(0, 0, [ExternalRecord(STREAM, b"k", b"of another", 1)] * RECORDS)
        log.poll()
        assert sent_before(log, all_wirings(Job("twice", stages=[Split, Count]))[0], aligned=True) == STREAM
