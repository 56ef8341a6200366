"""Awaits the transactions that others have open in inputs which are to be read first (A2c)."""

import logging
from collections.abc import Callable, Collection, Sequence

from grete.logs.open_transactions import Saying
from grete.ports import Log
from grete.protocol.ids import TopicPartition

logger = logging.getLogger("grete")


class AwaitedTransactions:
    """Such an input ends where its messages end, and not where readers stop before an open transaction."""

    def __init__(self, log: Log, task: str, mono_ms: Callable[[], float]) -> None:
        """``task``: in whose name a wait is logged."""
        self._log = log
        self._saying = Saying(
            lambda text: logger.warning("awaits a transaction", extra={"task": task, "for": text}),
            lambda: mono_ms() / 1000,
        )

    def bounds(
        self, partitions: Sequence[TopicPartition], first: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return the bounds of partitions; of the ``first`` ones, with the end of what cannot be read yet."""
        bounds = self._log.all_bounds(partitions)
        for partition, found in self._log.open_transactions(first).items() if first else ():
            bounds[partition] = bounds[partition][0], found.end
        return bounds

    def hides(self, partition: TopicPartition, needed: Callable[[int], bool]) -> bool:
        """Whether an open transaction hides what is needed of an input: its first offset is."""
        found = self._log.open_transactions([partition]).get(partition)
        hidden = found is not None and needed(found.offset)
        self._saying.look({partition: found} if found is not None and hidden else {})
        return hidden
