"""Logs that repeat, that do not fence, on which another process claims, and whose owner dies."""

from typing import Any

from grete.core.graph.task_topology import TaskWiring
from grete.logs.embedded import EmbeddedLog
from grete.ports import Log
from grete.protocol.changelog import (
    ChangelogType,
    decode_changelog_header,
)
from grete.protocol.ids import TopicPartition
from grete.state.write.bulk.task_claim import claim


class RepeatingLog:
    """A log that holds each commit twice."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def send(self, owner: int, token: int, partition: TopicPartition, value: bytes, **named: Any) -> None:
        if decode_changelog_header(value).type is ChangelogType.COMMIT:
            self._log.send(owner, -1, partition, value, **named)
        self._log.send(owner, token, partition, value, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


class UnfencedLog(EmbeddedLog):
    """A log that does not compare before it appends, as Kafka without transactions: C3 alone protects."""

    def send(self, owner: int, token: int, partition: TopicPartition, value: bytes, **others: Any) -> None:
        """Queue a message, whatever is to fence it."""
        super().send(owner, token, partition, value, **(others | {"fence": None}))


class ClaimedBeforeTheOutcome(UnfencedLog):
    """An unfenced log on which another process claims ``wiring`` just before the next outcome is appended."""

    wiring: TaskWiring | None = None

    def send(self, owner: int, token: int, partition: TopicPartition, value: bytes, **others: Any) -> None:
        """Queue a message, an outcome behind that claim."""
        wiring = self.wiring
        if wiring is not None and decode_changelog_header(value).type is ChangelogType.OUTCOME:
            self.wiring = None
            claim(self, wiring)
        super().send(owner, token, partition, value, **others)


class BreakingLog:
    """A log whose owner dies before its n-th message."""

    def __init__(self, log: EmbeddedLog, left: int) -> None:
        self._log, self._left = log, left

    def send(self, *given: object, **named: object) -> None:
        self._left -= 1
        if not self._left:
            raise RuntimeError
        self._log.send(*given, **named)  # type: ignore[arg-type]  # handed on as given

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)
