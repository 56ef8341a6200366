"""Messages sent by steps of deterministic tasks, and the progress of each task: consumers commit at other times."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Self

from grete.batch.frames import Frame
from grete.core.deterministic.logical_watermarks import NEVER
from grete.core.graph.task_topology import TaskWiring
from grete.execution.deterministic.announced_time import AnnouncedTime
from grete.execution.timing.reserved_stores import META
from grete.protocol.commit import Commit
from grete.protocol.envelope import MessageType, decode_header
from grete.protocol.frames import frame_count
from grete.protocol.ids import TopicPartition
from grete.replay.audit.steps import RemadeMessage, ValueOf


class SentUpTo(NamedTuple):
    """Progress of a task at a commit: all that it sends afterwards is later.

    ``next_seqs``: by partition of a stream. ``told_t``: the logical time up to which it has told its event time.
    """

    next_seqs: Mapping[TopicPartition, int]
    told_t: int
    has_told: bool  # nothing of event time is due

    @classmethod
    def of(cls, wiring: TaskWiring, commit: Commit, value_of: ValueOf) -> Self:
        """Return it; ``value_of``: the state of the commit."""
        assert commit.deterministic is not None
        times = [frontier.t for frontier in commit.deterministic.frontiers]
        if wiring.external:
            times.append(commit.deterministic.last_t)
        due = NEVER
        for topic in dict.fromkeys(place.topic for place in wiring.timed_outputs):
            due = min(due, AnnouncedTime.due_in(topic, lambda key: value_of(META, key)))
        next_seqs = {TopicPartition(o.topic, o.partition): o.next_seq for o in commit.outputs}
        return cls(next_seqs, min(*times, due - 1), due == NEVER)

    def has_sent(self, commit: Commit, producer: int, *, timed: bool) -> bool:
        """Tell whether the task has sent all that the commit of a consumer includes of it; ``timed``: watermarks, too.

        Raises KeyError: the consumer reads another task.
        """
        assert commit.deterministic is not None
        for entry in commit.inputs:
            for channel in entry.channels:
                if (
                    channel.producer == producer
                    and channel.seq >= self.next_seqs[TopicPartition(entry.topic, entry.partition)]
                ):
                    return False
        return not timed or all(f.t <= self.told_t for f in commit.deterministic.frontiers if f.producer == producer)


def numbered(frames: Iterable[Frame], before: Commit) -> tuple[list[RemadeMessage], dict[TopicPartition, int]]:
    """Number what a step from the commit ``before`` has sent; return the next numbers, too."""
    following = {TopicPartition(o.topic, o.partition): o.next_seq for o in before.outputs}
    found = []
    for frame in frames:
        place = frame.partition
        found.append(RemadeMessage(frame.producer, *place, following[place], frame.start, frame.message))
        following[place] += number_of(found[-1])
    return found, following


def is_watermark(sent: RemadeMessage) -> bool:
    """Tell whether it is event time, and no records."""
    return decode_header(sent.message).type is MessageType.WATERMARK


def number_of(sent: RemadeMessage) -> int:
    """Return the number of records."""
    return 0 if is_watermark(sent) else frame_count(sent.message)


def not_taken(sent: Sequence[RemadeMessage], commit: Commit) -> list[RemadeMessage]:
    """Return the messages that a consumer's commit does not include, or not all of."""
    assert commit.deterministic is not None
    seqs = {(c.producer, entry.topic, entry.partition): c.seq for entry in commit.inputs for c in entry.channels}
    upto = {(f.producer, f.topic, f.partition): f.t for f in commit.deterministic.frontiers}
    return [
        each
        for each in sent
        if (each.start > upto[each[:3]] if is_watermark(each) else each.seq + number_of(each) - 1 > seqs[each[:3]])
    ]
