"""Feeds the lines of a file or pipe into a topic: each line becomes a record."""

import os
import select
import time
from collections.abc import Iterator
from typing import Any

from framework.api.topic import Topic
from framework.errors import ConfigError, SerdeError
from framework.ports import ExternalRecord, JobMetadata
from protocol.ids import TopicPartition
from protocol.partitioner import partition_of

READ_BYTES = 256 << 10  # at once, and so in one transaction
LINE_BYTES_MAX = 1 << 20  # Kafka's default limit on a message is about as much


def feed_lines(log: JobMetadata, topic: Topic[Any, Any], handle: int, *, keys: bool = False) -> Iterator[int]:
    """Append every line of an open file; yield the number of lines so far, also when there is nothing to read just now.

    A line's bytes are the value, checked by the topic's serde: text and JSON have lines, binary serdes do not. With
    ``keys``, the text before the first tab is the key. Without, lines have none and go to the partitions in turn.
    Raises ConfigError naming the line.
    """
    partitions = log.partitions(topic.name)
    if partitions is None:
        raise ConfigError(f"no topic {topic.name!r} to feed lines into: create the job's topics first")
    number, rest, ended = 0, b"", False
    while not ended:
        if not select.select([handle], [], [], 0)[0]:  # a person types, or the writer of a pipe thinks
            yield number
            continue
        piece = os.read(handle, READ_BYTES)
        ended = not piece
        *lines, rest = (rest + piece).split(b"\n")
        if ended and rest:
            lines, rest = [rest], b""
        if len(rest) > LINE_BYTES_MAX:
            raise ConfigError(f"line {number + len(lines) + 1} is longer than {LINE_BYTES_MAX} bytes: split it")
        batch = []
        for line in lines:
            number += 1
            key, value = _split(line.rstrip(b"\r"), number) if keys else (None, line.rstrip(b"\r"))
            _check(topic, key, value, number)
            partition = number % partitions if key is None else partition_of(key, partitions)
            now_ms = time.time_ns() // 1_000_000
            batch.append(ExternalRecord(TopicPartition(topic.name, partition), key, value, now_ms))
        if batch:
            log.produce_with_meta(batch, {})
        yield number


def _split(line: bytes, number: int) -> tuple[bytes, bytes]:
    key, tab, value = line.partition(b"\t")
    if not tab:
        raise ConfigError(f"line {number} has no tab: with --keys a line is KEY<tab>VALUE")
    return key, value


def _check(topic: Topic[Any, Any], key: bytes | None, value: bytes, number: int) -> None:
    try:
        if key is not None:
            topic.key.decode(key)
        topic.value.decode(value)
    except SerdeError as error:
        raise ConfigError(f"line {number} is not a record of topic {topic.name!r}: {error}") from error
