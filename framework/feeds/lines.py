"""Feeds the lines of a file or pipe into a topic: each line becomes a record, with its number in the headers."""

import os
import select
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from grete.api.serdes.key import partition_by
from grete.api.topics.topic import Topic
from grete.errors import ConfigError, SerdeError
from grete.feeds.line_forms import Line, LineForm, record_of
from grete.feeds.numbered_file import LINE_BYTES_MAX, NumberedFile
from grete.feeds.numbers import RecordNumbers, cell_of, new_session
from grete.ports import ExternalRecord, JobMetadata
from grete.protocol.ids import TopicPartition
from grete.quoting import error_text

READ_BYTES = 256 << 10  # at once, and so in one transaction

MARK = b"\xef\xbb\xbf"  # of UTF-8: programs on Windows write it at the begin of a text, which it is no part of


def feed_lines(
    log: JobMetadata, topic: Topic[Any, Any], handle: int, *, form: LineForm = LineForm.VALUES, path: str | None = None
) -> Iterator[int]:
    """Append every line of an open file; yield the number of lines so far, also when there is nothing to read just now.

    Bytes are checked by the topic's serdes: text and JSON have lines, binary serdes need JSON. A record without a key
    goes to the partitions in turn.

    Lines are numbered in a session of their own. With the ``path`` of a regular file, which is open at its beginning,
    the lines of a file that has been fed before, or was when the process was killed, get their numbers again; so do
    those of a file that has grown since, up to where it was. Raises ConfigError naming the line.
    """
    partitions = log.partitions(topic.name)
    if partitions is None:
        raise ConfigError(f"no topic {topic.name!r} to feed lines into: create the job's topics first")
    session, read = new_session(), os.read
    if path is not None:
        file = NumberedFile(log, f"feed-lines/{topic.name}/{path}", handle, f"{partitions} {form.value}")
        for _ in file.extend():
            yield 0
        session, read = file.session, file.read
    numbers, number, partition_of = RecordNumbers(session), 0, partition_by(topic.key)
    for lines in read_lines(handle, topic, form, read=read):
        batch = []
        for key, value, timestamp_ms, headers in lines:
            number += 1
            partition = number % partitions if key is None else partition_of(key, partitions)
            cell = cell_of(session, partition, numbers.next(partition), headers)
            at_ms = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
            batch.append(ExternalRecord(TopicPartition(topic.name, partition), key, value, at_ms, cell))
        if batch:
            log.produce_with_meta(batch, {})
        yield number


def read_lines(
    handle: int, topic: Topic[Any, Any], form: LineForm, *, read: Callable[[int, int], bytes] = os.read
) -> Iterator[Sequence[Line]]:
    """Yield the lines that can be read at once, none when there is nothing just now. Raises ConfigError naming one."""
    of_line = record_of(topic, form)
    number, rest, ended = 0, b"", False
    readable = select.poll()
    readable.register(handle, select.POLLIN)
    while not ended:
        if not readable.poll(0):  # a person types, or the writer of a pipe thinks
            yield ()
            continue
        piece = read(handle, READ_BYTES)
        ended = not piece
        *lines, rest = (rest + piece).split(b"\n")
        if ended and rest:
            lines, rest = [rest], b""
        if len(rest) > LINE_BYTES_MAX:
            raise ConfigError(f"line {number + len(lines) + 1} is longer than {LINE_BYTES_MAX} bytes: split it")
        found = []
        for line in lines:
            number += 1
            text = (line.removeprefix(MARK) if number == 1 else line).rstrip(b"\r")
            try:
                found.append(of_line(text))
            except (SerdeError, ValueError, TypeError) as error:
                raise ConfigError(
                    f"line {number} is not a record of topic {topic.name!r}: {error_text(error)}"
                ) from error
        yield found
