"""The invariant of seqs: those in a commit are the ones that its task has sent and taken (A3, R3)."""

from grete.protocol.commit import Commit
from grete.protocol.ids import TopicPartition
from tests.verification.simulation.oracle import TaskHistory, Violation


def check_seqs(name: str, history: TaskHistory, commit: Commit, *, aligned: bool) -> None:
    """Check the next seq of each output, and of an aligned task the last seq of each channel. Raises Violation."""
    for o in commit.outputs:
        expected = len(history.outputs[TopicPartition(o.topic, o.partition)]) + 1
        if o.next_seq != expected:
            raise Violation("seq", f"{name}: next seq {o.next_seq} in {o.topic}[{o.partition}], expected {expected}")
    for i in commit.inputs if aligned else ():
        for c in i.channels:
            at = history.cursors[c.producer, TopicPartition(i.topic, i.partition)]
            if c.seq != at:
                raise Violation(
                    "seq", f"{name}: seq {c.seq} of producer {c.producer} in {i.topic}[{i.partition}], holds {at}"
                )
