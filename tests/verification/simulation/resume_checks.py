"""The invariant of a resume offset: no record that a restart needs may lie before it (A6, A7)."""

from collections.abc import Callable, Sequence

from grete.ports import LogRow
from grete.protocol.envelope import Header, MessageType, decode_header
from grete.protocol.frames import frame_count
from grete.protocol.ids import TopicPartition
from tests.verification.simulation.oracle import Violation

_PROVE = (MessageType.MARKER, MessageType.ROLLBACK_MARKER)  # that all records of a checkpoint came before


def check_resume(
    name: str,
    resume: tuple[TopicPartition, int],
    rows: tuple[Sequence[LogRow], Sequence[LogRow]],
    is_left_out: Callable[[Header, int], bool],
    is_later: Callable[[Header], bool],
) -> None:
    """Check the rows before a resume offset, from the last one on. ``rows``: those, and those behind it.

    ``is_left_out`` tells whether a frame has records that the commit does not hold, by its header and their number;
    ``is_later``, whether a marker is of a later checkpoint. Such a marker may be passed only if another one follows.
    """
    partition, offset = resume
    later: dict[int, Header] = {}
    for row in rows[0]:
        header = decode_header(row.value or b"")
        if header.type is MessageType.FRAME and is_left_out(header, frame_count(row.value or b"")):
            raise Violation(
                "resume", f"{name}: resumes {partition} at {offset}, but offset {row.offset} is not included: {header}"
            )
        if header.type is MessageType.MARKER and is_later(header):
            later[header.producer] = header
    for row in rows[1] if later else ():
        header = decode_header(row.value or b"")
        before = later.get(header.producer)
        if header.type in _PROVE and before is not None and header.checkpoint_id >= before.checkpoint_id:
            del later[header.producer]
    if later:
        raise Violation("resume", f"{name}: resumes {partition} at {offset}, behind later markers: {later}")
