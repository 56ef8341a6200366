"""The positions of a job's tasks as the offsets of a consumer group: for lag tools, and for writers of streams."""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from grete.logs.kafka.client.broker_query import BrokerQuery
from grete.logs.kafka.client.config import COORDINATOR_S_MAX
from grete.logs.kafka.client.errors import AWAY, PASSING, logger
from grete.protocol.ids import TopicPartition

ANSWER_S_MAX = 60.0  # a broker that restarts or elects a leader answers well within
AGAIN_S = 1.0  # after a commit that failed: the coordinator may be moving, or the right is missing for good
CLOSE_S_MAX = 1.0  # nothing is sent at the end; the process must not hang on a dead broker


class GroupPositions:
    """Commits and asks in the background, never waits and never raises: what is correct does not depend on it.

    Not by a consumer's commit: where the group has no coordinator, that consumer would not close for 45 s.

    It publishes by an admin client of its own, which is given up, and another one made, where an answer takes too long.
    No request ever times out in the client: see ``COORDINATOR_S_MAX``.

    It asks by a consumer: an admin client that is told "not the coordinator", as by a broker that starts up, looks for
    the consumer's part of itself, which it does not have, and the process ends with SIGSEGV.
    """

    def __init__(
        self,
        connect: Callable[[], AdminClient],
        ask: Callable[[Sequence[KafkaPartition]], BrokerQuery],
        group: str,
    ) -> None:
        """``connect`` returns a new admin client: it is called when there is something to publish.

        ``ask`` asks the coordinator of ``group`` for offsets. The answers are the same partitions with their offsets.
        """
        self._connect, self._ask = connect, ask
        self._client: AdminClient | None = None
        self._published_s = 0.0  # when the request that is under way was sent
        self._group = group
        self._positions: dict[TopicPartition, tuple[int, int]] = {}  # and what is asked for: to be published
        self._publishing: Future[Any] | None = None
        self._on_the_way: dict[TopicPartition, tuple[int, int]] = {}
        self._not_before_s = 0.0
        self._told: dict[TopicPartition, tuple[int, int]] = {}  # position, checkpoint: as the coordinator has told last
        self._asking: BrokerQuery | None = None
        self._warned = False

    def publish(self, positions: Mapping[TopicPartition, int], asked: int = 0) -> None:
        """Commit positions with the next ``poll``; ``asked``, a checkpoint, goes with them as their metadata."""
        self._positions.update({partition: (offset, asked) for partition, offset in positions.items()})

    def published(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the coordinator's last answer, and ask it again."""
        self._look(partitions)
        return {partition: self._told[partition][0] for partition in partitions if partition in self._told}

    def asked(self, partitions: Sequence[TopicPartition]) -> int:
        """Return the highest checkpoint that the coordinator has told of last, 0 for none, and ask it again."""
        self._look(partitions)
        return max((self._told[partition][1] for partition in partitions if partition in self._told), default=0)

    def _look(self, partitions: Sequence[TopicPartition]) -> None:
        if self._asking is not None and self._asking.over(0):
            for at in self._without_errors(self._asking.answer):
                if at.offset >= 0:
                    self._told[TopicPartition(at.topic, at.partition)] = at.offset, _checkpoint_in(at.metadata)
            self._asking = None
        if self._asking is None:
            self._asking = self._ask([KafkaPartition(*partition) for partition in partitions])

    def poll(self) -> None:
        """Send what was asked for, once what was sent before is answered; what was not taken goes again."""
        if self._publishing is not None and self._publishing.done():
            publishing = self._publishing
            told = self._without_errors(lambda: publishing.result().topic_partitions)
            self._took({TopicPartition(at.topic, at.partition) for at in told})
        self._give_up_late()
        if self._positions and self._publishing is None and time.monotonic() >= self._not_before_s:
            offsets = [
                KafkaPartition(*at, offset, metadata=str(asked) if asked else "")
                for at, (offset, asked) in self._positions.items()
            ]
            self._on_the_way, self._positions = self._positions, {}
            asked = [ConsumerGroupTopicPartitions(self._group, offsets)]
            self._published_s = time.monotonic()
            altered = self._admin().alter_consumer_group_offsets(asked, request_timeout=COORDINATOR_S_MAX)
            self._publishing = altered[self._group]

    def _took(self, taken: Collection[TopicPartition]) -> None:
        """Note of which partitions the group has taken what was sent; the others go again."""
        failed = {at: position for at, position in self._on_the_way.items() if at not in taken}
        if failed:  # a task reports a position once: if this one is lost, a source may wait for it
            self._positions = failed | self._positions
            self._not_before_s = time.monotonic() + AGAIN_S
        self._publishing = None

    def _give_up_late(self) -> None:
        """Begin afresh, with another client, where an answer takes too long: it may be lost."""
        if self._publishing is not None and time.monotonic() - self._published_s >= ANSWER_S_MAX:
            self._took(())
            self._let_go()

    def _admin(self) -> AdminClient:
        if self._client is None:
            self._client = self._connect()
        return self._client

    def _let_go(self) -> None:
        """Disconnect in a thread: the client waits for what it has under way."""
        held, self._client = [self._client], None
        threading.Thread(target=held.clear, name="end of an admin client", daemon=True).start()

    def close(self) -> None:
        """Publish the last positions, if the broker takes them within a moment."""
        deadline = time.monotonic() + CLOSE_S_MAX
        while (self._positions or self._publishing) and time.monotonic() < deadline:
            self.poll()
            if self._publishing is not None:
                wait((self._publishing,), max(0.0, deadline - time.monotonic()))

    def _without_errors(self, answer: Callable[[], Sequence[KafkaPartition]]) -> Sequence[KafkaPartition]:
        """Return the partitions of an answer that have no error; warn once of one that does not pass by itself."""
        try:
            told = answer()
        except KafkaException as error:
            told, found = [], error.args[0]
        else:
            found = next((at.error for at in told if at.error is not None), None)
        passes = isinstance(found, KafkaError) and found.code() in AWAY | PASSING  # it is asked again
        if found is not None and not self._warned and not passes:
            self._warned = True
            logger.warning(
                "lag tools, and tasks that write streams, cannot see the positions of their readers (said once): a "
                "source waits for commits when downstream_lag_messages_max messages are not trimmed: %s: group %s %s",
                found,
                self._group,
                _what_to_do(found),
            )
        return [at for at in told if at.error is None]


def _what_to_do(error: BaseException | KafkaError) -> str:
    """Return the trouble with the group, and its remedy."""
    code = error.code() if isinstance(error, KafkaError) else None
    if code == KafkaError.UNKNOWN_MEMBER_ID:
        return "is in use by consumers that are not the job's: give them a group of another name"
    if code in (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED):
        return "needs the operation Read"
    return "cannot be asked"


def _checkpoint_in(metadata: str | None) -> int:
    """Return the checkpoint that is asked for, 0 for none: another program's text in the group asks for none."""
    return int(metadata) if metadata and metadata.isascii() and metadata.isdigit() else 0
