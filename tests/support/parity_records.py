"""The input of ``parity``'s jobs: a history, and the records behind it."""

from collections.abc import Sequence

from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from tests.support.parity_topics import BEGIN_MS, PARTITIONS, alarms, events, prices, visits

PRICE_PARTITIONS = 3

Fed = tuple[str, str, int, int]  # topic, key, value, timestamp


def fed(begin: int, end: int) -> list[Fed]:
    """Return events and alarms of these numbers, in the order of time; the last ones bring all tasks to one time."""
    found: list[Fed] = []
    for number in range(begin, end):
        at = BEGIN_MS + 17 * number + number % 3
        found.append((events.name, "abcdef"[number % 6], number * 7 % 11, at))
        if number % 10 == 0:
            found.append((alarms.name, "abcdef"[number % 6], number, at + 1))
    return found + [(topic.name, key, 1, BEGIN_MS + 17 * end) for topic in (events, alarms) for key in "abcdef"]


def fed_visits(begin: int, end: int) -> list[Fed]:
    """Return visits of these numbers, as ``fed`` returns events: each partition of that topic is behind another."""
    at = [BEGIN_MS + 17 * number + number % 5 for number in range(begin, end)]
    found = [(visits.name, "abcdef"[number % 6], number % 7, at[number - begin]) for number in range(begin, end)]
    return found + [(visits.name, key, 1, BEGIN_MS + 17 * end) for key in "abcdef"]


def table() -> list[Fed]:
    """Return the prices, which are younger than all events of the history."""
    return [(prices.name, key, 3 + number, BEGIN_MS + 100_000_000) for number, key in enumerate("abcdef")]


def records_of(found: Sequence[Fed], suffix: str, shift_ms: int) -> list[ExternalRecord]:
    """Return rows as the log takes them, each in the partition of its key, later by ``shift_ms``."""
    counts = {prices.name: PRICE_PARTITIONS, visits.name: 2 * PARTITIONS}
    return [
        ExternalRecord(
            TopicPartition(f"{topic}{suffix}", partition_of(key.encode(), counts.get(topic, PARTITIONS))),
            key.encode(),
            value.to_bytes(8, "big"),
            at + shift_ms,
        )
        for topic, key, value, at in found
    ]
