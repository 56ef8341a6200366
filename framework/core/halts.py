"""The errors of a task that reads a message which cannot be in its stream: what is wrong with it, and where it is."""

from grete.errors import Halted
from grete.halts import HaltCode
from grete.protocol.envelope import Header
from grete.protocol.errors import DecodeError
from grete.protocol.ids import TopicPartition


def halted(task: str, partition: TopicPartition, offset: int, header: Header, text: str) -> Halted:
    """Return the error for a message whose header contradicts what was read before it."""
    return Halted(
        f"{task}: {partition} offset {offset}: producer {header.producer} generation {header.generation} "
        f"checkpoint {header.checkpoint_id} seq {header.seq}: {text}",
        task=task,
        partition=partition,
        offset=offset,
        checkpoint_id=header.checkpoint_id,
        code=HaltCode.STREAM_DAMAGED,
    )


def went_back(task: str, partition: TopicPartition, offset: int, position: int) -> Halted:
    """Return the error for a message that lies before the task's position in the partition (R5)."""
    return Halted(
        f"{task}: {partition}: received offset {offset}, expected {position} or later: the log was truncated or "
        "rewritten. Start the worker again; if it halts again, restore the topic",
        task=task,
        partition=partition,
        offset=offset,
        code=HaltCode.LOG_WENT_BACK,
    )


def undecodable(task: str, partition: TopicPartition, offset: int, error: DecodeError) -> Halted:
    """Return the error for a value that is no message of the protocol."""
    return Halted(
        f"{task}: {partition} offset {offset}: {error}; an internal topic must hold only what Grete wrote: find the "
        "writer",
        task=task,
        partition=partition,
        offset=offset,
        code=HaltCode.STREAM_DAMAGED,
    )
