"""The topics that records have named: how many partitions each has, and the send of an output that goes to them."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Protocol

from grete.api.topics.topic import Topic, TopicPattern
from grete.errors import ConfigError, TaskError
from grete.execution.records.encoding import SendFunction
from grete.ports import Log

AnyPattern = TopicPattern[Any, Any]
SenderOf = Callable[[Topic[Any, Any], int], SendFunction]  # topic, partitions → the send of an output to it alone


class TopicNames(Protocol):
    """Knows the topics of patterns, for all tasks of a process."""

    def partitions(self, pattern: AnyPattern, topic: str, tasks: int) -> int:
        """Return the number of partitions that the job writes to, of a topic that is there; it is made if it is new.

        ``tasks``: of the stage that asks. Raises TaskError if it would be one more than ``at_most``; ConfigError,
        TransientError if it cannot be made.
        """


class NamesInMemory:
    """TopicNames of a log that no other process has: of the test kit, and where history runs again."""

    def __init__(self, log: Log | None) -> None:
        """Begin without a topic. None: topics are not made, as nothing is written."""
        self.known: defaultdict[str, dict[str, int]] = defaultdict(dict)  # pattern → topic → partitions
        self._log = log

    def partitions(self, pattern: AnyPattern, topic: str, tasks: int) -> int:
        """Return the number of partitions of a topic; make it."""
        known = self.known[pattern.pattern]
        if topic not in known:
            if self._log is not None and len(known) >= pattern.at_most:
                raise pattern.one_too_many(topic)
            found = None if self._log is None else self._log.partitions(topic)
            known[topic] = count = found or pattern.partitions or tasks
            if self._log is not None:
                self._log.create_topic(topic, count, plain=True)
        return known[topic]


def chooser(pattern: AnyPattern, names: TopicNames, tasks: int, sender_of: SenderOf) -> SendFunction:
    """Return Output.send, which sends each record to the topic that it names."""
    by, senders = pattern.by, dict[str, SendFunction]()

    def send(key: Any, value: Any, **options: Any) -> None:
        part = by(key, value)
        sender = senders.get(part)
        if sender is None:
            try:
                topic = pattern.of(part)
            except ConfigError as error:
                raise TaskError(f"output to {error}") from error
            sender = senders[part] = sender_of(topic, names.partitions(pattern, topic.name, tasks))
        sender(key, value, **options)

    return send
