"""The ways in which a record of a simulated task finds its partition: in turn, by its key, or as the task says."""

from typing import Any

from grete.api.topics.topic import Output

TURNS, BY_KEY = 0, 1  # of four: how a record finds its partition; else the task names it


def send_by(
    output: Output[Any, Any], way: int, key: bytes | None, value: bytes, partition: int, timestamp: int | None
) -> None:
    """Send a record by one of the ways."""
    if way == TURNS:
        output.send(None, value, timestamp=timestamp)
    elif way == BY_KEY:
        output.send(key, value, timestamp=timestamp)
    else:
        output.send(key, value, timestamp=timestamp, partition=partition)
