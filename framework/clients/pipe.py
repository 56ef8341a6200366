"""Feeds the lines of a pipe into a topic through a spool: what was read is kept, whatever becomes of the log."""

import time
from collections.abc import Iterator
from typing import Any

from grete.api.topics.topic import Topic
from grete.clients.writer import Writer
from grete.feeds.line_forms import LineForm
from grete.feeds.lines import read_lines
from grete.feeds.spool import Spooled

WAIT_S = 0.01  # for the log to take records, where nothing else is to be done: workers must be watched meanwhile


def spool_lines(writer: Writer[Any, Any], topic: Topic[Any, Any], handle: int, form: LineForm) -> Iterator[int]:
    """Write every line of an open pipe; yield the number of lines so far, also when there is nothing to read just now.

    It ends when the log has acknowledged all. While the spool is full the pipe is not read, so its writer waits.
    Raises ConfigError naming a line, and what the Writer raises.
    """
    number = 0
    for lines in read_lines(handle, topic, form):
        now_ms = time.time_ns() // 1_000_000
        records = [
            Spooled(key, value, now_ms if timestamp_ms is None else timestamp_ms, headers)
            for key, value, timestamp_ms, headers in lines
        ]
        while records and not writer.offer(records):
            writer.flush(WAIT_S)
            yield number
        number += len(lines)
        yield number
    while not writer.flush(WAIT_S):
        yield number
