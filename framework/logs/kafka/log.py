"""The log of a job on Apache Kafka: plain acknowledged messages between stages, transactions for sinks (1.3, S1)."""

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter

from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from grete.errors import ConfigError, OffsetOutOfRange, TransientError
from grete.logs.kafka.admin import Topics
from grete.logs.kafka.client.broker_query import BrokerQuery
from grete.logs.kafka.client.config import batching, scrubber, split_options
from grete.logs.kafka.client.errors import Troubles
from grete.logs.kafka.client.metadata_client import SPREAD_S_MAX
from grete.logs.kafka.client.refusals import TimestampLimits
from grete.logs.kafka.client.tls_diagnosis import ClientOptions
from grete.logs.kafka.group_positions import GroupPositions
from grete.logs.kafka.read.reader import KafkaReader
from grete.logs.kafka.topic_settings import COMPACTED, STREAM
from grete.logs.kafka.write.job_metadata import KafkaJobMetadata
from grete.logs.kafka.write.producer import KafkaWriter
from grete.logs.kafka.write.transactions import Transactions
from grete.logs.kafka.write.whole_writer import WholeWriter
from grete.logs.patience import Patience
from grete.logs.topic_identity import METADATA_GONE, OUTPUT_GONE, check_count, check_topic
from grete.ports import READS, Delivery, ExternalRecord, Reads
from grete.protocol.ids import TopicPartition

COMPLETED_S_MAX = 15.0  # what a predecessor has seen committed can be read by then, if the log still has it
READABLE_S_MAX = 90.0  # a transaction that a dead process left open has timed out by then
STEP_S = 0.001  # of looking at deliveries and messages in turn, while both may come
STEP_S_MAX, STEP_GROWTH = 0.005, 1.5
_PARTITION_OF = itemgetter(0)  # of an ExternalRecord; a sink has tens of thousands


class KafkaLog(KafkaReader):
    """grete.ports.Log over a Kafka cluster; one consumer and one producer. Neither thread safe nor fork safe.

    ``fence`` is ignored: the core compares offsets instead (C3). ``sync`` is, too: what is acknowledged is on all
    replicas in sync. ``read`` returns nothing only if there was nothing at the last ``bounds`` or seek: it may wait.
    """

    def __init__(
        self,
        bootstrap: str,
        options: ClientOptions | None = None,
        *,
        group: str = "grete",
        patience: Patience | None = None,
        reads: Reads = READS,
    ) -> None:
        """Connect to ``host:port[,host:port…]``. ``group`` is what lag tools see; ``options`` are librdkafka's.

        ``reads``: how it will be read: of many partitions, or where that may be late, a seek takes a little longer.
        ``patience``: how long to wait for brokers that do not answer. Raises ConfigError (an option, who we are),
        LogAway (no broker answers).
        """
        self._producer, self._consumer, admin = split_options(bootstrap, group, options or {}, reads=reads)
        troubles = Troubles(scrubber(options or {}))
        patience = Patience() if patience is None else patience
        self._writer = KafkaWriter(self._producer, troubles)  # first: a producer id takes longest
        self._writers = [self._writer]  # a second one, for plain records, is made when there are some
        self._topics = Topics(admin, troubles, patience)
        self._timestamps = TimestampLimits(self._topics.settings.timestamp_limits)
        connect = partial(troubles.made, AdminClient, admin)
        self._positions = GroupPositions(connect, self._ask_group, group)
        self._transactions: dict[TopicPartition, Transactions] = {}
        self._ends: dict[tuple[int, int], TopicPartition] = {}  # of what goes to changelogs, by owner and token
        self._committed: dict[TopicPartition, int] = {}  # what predecessors have committed ends there or later
        self._readable: dict[TopicPartition, int] = {}  # what is acknowledged ends here, so bounds must show it
        super().__init__(bootstrap, self._consumer, troubles, patience, self._writer.answers)

    # --- topics ---

    def create_topic(
        self, topic: str, partitions: int, *, plain: bool = False, compacted: bool = False, grow: bool = False
    ) -> None:
        """Make sure that the topic exists, and that it is fit to be a stream or changelog (K1) if it is not plain.

        ``compacted``: neither, but one that keeps the newest record of each key. ``grow``: one that has fewer
        partitions gets more; what is in it stays where it is.
        Raises ConfigError: a bad name, another number of partitions, a setting that would lose data.
        """
        check_topic(topic, partitions)
        found = self.connection.metadata.partitions(topic)
        if found is None or (grow and found < partitions):
            before = found
            if before is None:
                self._topics.create(topic, partitions, COMPACTED if compacted else {} if plain else STREAM)
            else:
                self._topics.grow(topic, partitions)
            deadline = time.monotonic() + SPREAD_S_MAX
            while (found := self.connection.metadata.partitions(topic)) in (None, before):
                if time.monotonic() > deadline:
                    raise TransientError(
                        f"topic {topic} was made but is not there after {SPREAD_S_MAX:.0f} s: start again", topic=topic
                    )
                time.sleep(0.01)
        if plain:
            check_count(topic, found, partitions)
        else:
            check_count(topic, found, partitions, "delete it, if it is empty; else rename the job")
        if not (plain or compacted) and (large := self._topics.settings.check(topic)):
            self._topics.settings.give_back(topic, large)
        self.connection.counts[topic] = found

    def open_metadata(self, job: str, transactional: str | None = None) -> KafkaJobMetadata:
        """Return the metadata of a job in the cluster; make the topic for it. Raises ConfigError."""
        clients = self._producer, self._consumer, self.connection.troubles
        whole = None if transactional is None else WholeWriter(*clients, transactional)
        metadata = KafkaJobMetadata(self, job, whole)
        self.create_topic(metadata.topic, 2, compacted=True)
        self._topics.watch([metadata.topic], METADATA_GONE)
        return metadata

    def identities(self, topics: Sequence[str]) -> dict[str, str]:
        """Return topic → its id, "" on an old broker: a topic created again has another one. And watch these topics.

        From here on ``poll`` raises Halted when one of them was created again, deleted or given more partitions.
        """
        return {topic: identity for topic, (identity, _) in self._topics.identities(topics).items()}

    def watch(self, topics: Sequence[str]) -> None:
        """Watch topics that the job only writes: from here on ``poll`` raises Halted when one was deleted."""
        self._topics.watch(topics, OUTPUT_GONE)

    def refuse_compacted(self, topic: str, stage: str) -> None:
        """Raise ConfigError if the broker compacts a topic that a deterministic stage reads (D2)."""
        self._topics.settings.refuse_compacted(topic, stage)

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """Return (offset of the first message still there, offset of the next message to come): one round trip."""
        self.connection.check(partition)
        self._topics.settle(partition)
        if committed := self._committed.pop(partition, 0):
            self._reach(partition, committed, COMPLETED_S_MAX)  # the core judges what is not there
        readable = self._readable.get(partition, 0)
        found = self._reach(partition, readable, READABLE_S_MAX)
        if found[1] < readable:
            raise TransientError(
                f"{partition} cannot be read to its end: a transaction is open in it: end its producer, or wait until "
                "the broker aborts it",
                partition=partition,
            )
        return found

    def all_bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the bounds of each: two round trips for all, and more where something is not shown yet."""
        asked = tuple(dict.fromkeys(partitions))
        for partition in asked:
            self.connection.check(partition)
            self._topics.settle(partition)
        found = self.fetches.all_bounds(asked)
        late = (p for p in asked if self._committed.get(p, 0) or found[p][1] < self._readable.get(p, 0))
        return found | {partition: self.bounds(partition) for partition in late}

    def _reach(self, partition: TopicPartition, end: int, seconds: float) -> tuple[int, int]:
        """Return the bounds when they reach ``end``: markers are written after a commit is acknowledged."""
        deadline = time.monotonic() + seconds
        while (found := self.fetches.bounds(partition))[1] < end and time.monotonic() < deadline:
            time.sleep(STEP_S_MAX)
        return found

    def trim(self, partition: TopicPartition, before: int) -> None:
        """Delete messages with offset < ``before``, in the background. Raises OffsetOutOfRange beyond the end."""
        self.connection.check(partition)
        end = max(self.fetches.seen_end(partition), self._readable.get(partition, 0))
        if before > end:
            end = self.fetches.bounds(partition)[1]
        if before > end:
            raise OffsetOutOfRange(
                f"{partition}: cannot trim before {before}: the log ends at {end}", partition=partition, offset=before
            )
        if before > 0:
            self._topics.trim(partition, before)

    def transactional(self, partition: TopicPartition, committed: int = -1) -> None:
        """Write this changelog in transactions from here on, with a transactional id that is always the same (S1)."""
        self.connection.check(partition)
        self._committed[partition] = committed + 1
        if partition not in self._transactions:
            self._transactions[partition] = Transactions(
                self._producer, self._consumer, self.connection.troubles, partition
            )

    def give_up(self, owner: int, changelog: TopicPartition) -> None:
        """Forget a task that has ended while others go on: what it has sent may still arrive, and is not waited for.

        Who declares its changelog transactional again takes the transactional id over.
        """
        self._ends = {key: partition for key, partition in self._ends.items() if key[0] != owner}
        transactions = self._transactions.pop(changelog, None)
        if transactions is not None:
            transactions.give_up()  # another thread waits for its end, and lets go of the client: that may take long
            threading.Thread(target=transactions.close, name=f"end of {transactions.id}", daemon=True).start()

    # --- messages ---

    def send(
        self,
        owner: int,
        token: int,
        partition: TopicPartition,
        value: bytes,
        *,
        fence: int | None = None,
        sync: bool = False,
        outputs: Sequence[ExternalRecord] = (),
    ) -> None:
        """Queue one internal message; see grete.ports.Log."""
        self.connection.check(partition)
        self._check_records(outputs)
        transactions = self._transactions.get(partition)
        if outputs and transactions is None:
            raise ConfigError(
                f"{len(outputs)} outputs with a message to {partition}: declare it transactional first",
                partition=partition,
            )
        if sync or fence is not None:
            self._ends[owner, token] = partition
        if transactions is None:
            self._writer.send(owner, token, partition, value)
        else:
            transactions.send(owner, token, value, outputs, ends=sync)

    def produce(self, owner: int, token: int, records: Sequence[ExternalRecord]) -> None:
        """Queue plain records; one delivery for all of them (offset: of the last, -1 if there are none)."""
        self._check_records(records)
        if len(self._writers) < 2:
            self._writers.append(KafkaWriter(batching(self._producer), self.connection.troubles))
        self._writers[1].produce(owner, token, records)

    def _check_records(self, records: Sequence[ExternalRecord]) -> None:
        partitions = set(map(_PARTITION_OF, records))
        for each in partitions:
            self.connection.check(each)
        self._timestamps.check(records, partitions)

    def poll(self) -> list[Delivery]:
        """Hand over what is queued and return what became known since the last call.

        Raises what a message failed with: Halted (too large), ConfigError (no permission), TransientError.
        """
        self._topics.poll()
        self._positions.poll()
        deliveries = [delivery for sender in self._senders() for delivery in sender.poll()]
        if deliveries:
            self.connection.metadata.answered()
        elif any(sender.waits for sender in self._senders()):
            self.connection.metadata.waits()
            if self.connection.patience.ended:
                raise self.connection.metadata.no_answer(self.connection.patience.clock_s())
        if self._ends:
            for owner, token, offset, *_ in deliveries:
                partition = self._ends.pop((owner, token), None)
                if partition is not None:
                    self._readable[partition] = max(offset + 1, self._readable.get(partition, 0))
        return deliveries

    def publish(self, positions: Mapping[TopicPartition, int]) -> None:
        """Commit positions in external topics to the consumer group, for lag tools only. Never raises."""
        self._positions.publish(positions)

    def report_processed(self, positions: Mapping[TopicPartition, int], asked: int = 0) -> None:
        """Commit positions in streams to the consumer group, in the background. Never raises."""
        self._positions.publish(positions, asked)

    def processed(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the positions that the group had when it was last asked, and ask it again, in the background."""
        return self._positions.published(partitions)

    def asked(self, partitions: Sequence[TopicPartition]) -> int:
        """Return the checkpoint that the metadata of these positions asks for, as ``processed``."""
        return self._positions.asked(partitions)

    def wait(self, timeout_ms: float, *, answers: bool = True) -> bool:
        """Wait for a message to a partition that is being read, or for a delivery; return True if one came.

        At the time-out return whether a delivery is still to come.
        Without ``answers`` only messages, unless something is still to be handed over: each time, a thread is woken.
        """
        reader, senders = self.fetches, self._senders()
        answers = answers or any(writer.stuck for writer in self._writers)
        deadline = time.monotonic() + timeout_ms / 1000
        step = STEP_S
        while not (reader.news or (answers and any(each.known for each in senders))):
            left = deadline - time.monotonic()
            if left <= 0:
                return any(each.waits for each in senders)
            left = max(left, STEP_S)  # librdkafka counts whole ms: less would not wait at all
            if not answers:
                reader.wait(left)
            elif not self._transactions.keys() >= set(self._ends.values()):  # a task waits for this answer
                self._writer.wait(min(left, step))
                reader.wait(0)
            else:  # no task is in a hurry to know that a frame or a transaction's outputs have arrived
                reader.wait(min(left, step) if any(each.waits for each in senders) else left)
            step = min(step * STEP_GROWTH, STEP_S_MAX)
        reader.news = False
        return True

    def close(self) -> None:
        """Disconnect; what is queued and was not polled is given up. A second close does nothing."""
        if not self.closed:
            for transactions in self._transactions.values():
                transactions.give_up()
            if (
                not self.connection.patience.ended
            ):  # else no broker is waited for any more: the next claim aborts what is open
                for transactions in self._transactions.values():
                    transactions.close()
            self._positions.close()
            for writer in self._writers:
                writer.close()
            super().close()

    def _ask_group(self, partitions: Sequence[KafkaPartition]) -> BrokerQuery:
        return self.connection.metadata.group_offsets(partitions)  # which is there a moment later than the positions

    def _senders(self) -> list[KafkaWriter | Transactions]:
        return [*self._writers, *self._transactions.values()]
