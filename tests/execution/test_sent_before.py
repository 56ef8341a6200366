"""A start without a changelog looks for what its task has sent, beside consumers that trim it."""

from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from grete import Job
from grete.execution.changelog.restorer import sent_before
from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord
from grete.protocol.control import encode_joint_progress
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


@pytest.mark.parametrize(("producer", "found"), [(0, True), (1, True), (2, False)])
def test_what_was_announced_with_others_was_sent(tmp_path: Path, producer: int, *, found: bool) -> None:
    """A joint progress message is of each task that it names, not of the first one alone."""
    with closing(EmbeddedLog(tmp_path / "log.db")) as log:
        log.create_topic(STREAM.topic, 1)
        log.send(0, 0, STREAM, encode_joint_progress(0, [(0, 1, 1, 7), (1, 1, 1, 7)]))
        log.poll()
        wiring = replace(all_wirings(Job("twice", stages=[Split, Count]))[0], producer=producer)
        assert sent_before(log, wiring, aligned=True) == (STREAM if found else None)
