"""Takes checkpoint markers together that complete no alignment: with many producers nearly all of them (A6, 0127)."""

from grete.core.aligned.inputs import Inputs
from grete.core.events import Message, Messages
from grete.protocol.control import marker_fields


def next_message(inputs: Inputs, event: Message | Messages, frozen: int, *, stopping: bool) -> Message | None:
    """Take the markers of which nothing comes; return the message behind them, None if there is none.

    ``stopping``: a stop goes by what the last markers say (R6), so each of them is looked at.
    """
    if isinstance(event, Message):
        return event
    assert event.rows, f"{inputs.name}: no message of {event.partition}"
    taken = 0 if stopping or not inputs.aligned else _take_quiet_markers(inputs, event, frozen)
    if taken == len(event.rows):
        return None
    row = event.rows[taken]
    return Message(event.partition, row.offset, row.append_time_ms, row.value or b"")


def _take_quiet_markers(inputs: Inputs, event: Messages, frozen: int) -> int:
    """Take the markers at the head that agree with their channels and complete no alignment.

    Return how many that are. ``Inputs.message`` would do the same with each, and the task would do nothing. A marker is
    left to it that needs a check, says something new of the end, or may be the last that an alignment waits for.
    """
    channels, known, totals = inputs.channels, inputs.rollbacks.known, inputs.totals
    partition, taken = event.partition, 0
    position = inputs.position[partition]
    assert not inputs.taken_back, f"{inputs.name}: {partition} is read before the task has rolled back"
    for row in event.rows:
        offset, fields = row.offset, marker_fields(row.value or b"")
        if fields is None or offset < position:
            break
        producer, generation, checkpoint_id, seq, at_end = fields
        channel = channels.get((producer, partition))
        if channel is None or not channel.expects(generation, seq, at_end) or not totals.awaits_others(channel):
            break
        history = known[producer]
        if checkpoint_id <= frozen or checkpoint_id <= channel.marker or (history and history[-1][0] > generation):
            break
        totals.greatest_marker = max(totals.greatest_marker, checkpoint_id)
        channel.says(generation, checkpoint_id, offset)
        totals.proves(channel, checkpoint_id, offset, frozen)
        position, taken = offset + 1, taken + 1
    assert position >= inputs.position[partition], (partition, position)
    inputs.position[partition] = position
    return taken
