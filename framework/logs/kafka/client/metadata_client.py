"""Asking Kafka: which topics there are, and where a partition begins and ends.

A consumer of its own, which reads nothing: a broker answers the requests of one connection in turn, so a question on
the reader's would wait until its fetch has got something.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from grete.errors import FrameworkError
from grete.logs.kafka.client.broker_query import BrokerQuery
from grete.logs.kafka.client.errors import AWAY, UNKNOWN, Troubles, failed, failure
from grete.logs.kafka.client.tls_diagnosis import ClientConfig
from grete.logs.patience import Patience
from grete.protocol.ids import TopicPartition

SLICE_S = 0.5  # of waiting for the broker: signal handlers run in between
SLICES = 4  # of a first question: a broker that is near, and refuses, has said so by then
ANSWER_S = 10.0  # from then on an answer is lost: a broker may be far or busy, and what was given up is not answered
SPREAD_S_MAX = 30.0  # until every broker knows a topic: a busy one took 15 s
BEHIND_S = 0.05  # between two questions to brokers that do not know a topic yet


class MetadataClient:
    """Asks until a broker answers. Raises LogAway if none does for as long as the log's owner waits."""

    def __init__(self, config: ClientConfig, troubles: Troubles, bootstrap: str, patience: Patience) -> None:
        """Connect in the background."""
        self._config = config
        self.consumer: Consumer = troubles.made(Consumer, config)
        self._in_use = threading.Lock()  # the client lets one thread in, and keeps others waiting, even for ``poll(0)``
        self._group: Consumer | None = None  # of ``group_offsets``: a coordinator that is away holds up nothing else
        self._troubles = troubles
        self._bootstrap = bootstrap
        self._patience = patience
        self._found: set[str] = set()  # topics that were there when somebody asked
        self._asking: BrokerQuery | None = None  # the last one that took long
        self._probe: BrokerQuery | None = None  # of ``answers``
        self._positions: BrokerQuery | None = None  # of ``group_offsets``
        self._late = False  # whether the last answer took longer than a slice, or did not come

    def answers(self) -> bool:
        """Return whether a broker answers. It may answer late: ask again, and the same question goes on."""
        if self._probe is None:  # of one topic: a cluster may have many
            self._probe = self._asked(self._probed)
        over = self._probe.over(SLICE_S)
        self._take_errors()
        if not over:
            return False
        probe, self._probe = self._probe, None
        try:
            probe.answer()
        except KafkaException:
            return False
        return True

    def _probed(self) -> Any:
        """Ask in slices first: a refusal comes by a callback, which runs in a poll, and only this thread may poll."""
        for _ in range(SLICES):
            with suppress(KafkaException):
                return self.consumer.list_topics("__consumer_offsets", timeout=SLICE_S)
            self.consumer.poll(0)
        return self.consumer.list_topics("__consumer_offsets", timeout=ANSWER_S)

    def topics(self) -> dict[str, int]:
        """Return the number of partitions by topic, without Kafka's own topics."""
        listed = self._ask(lambda seconds: self.consumer.list_topics(timeout=seconds), "listing topics")
        return {name: len(topic.partitions) for name, topic in listed.topics.items() if not name.startswith("__")}

    def partitions(self, topic: str) -> int | None:
        """Return the number of partitions of a topic, or None if there is none. Asking does not make it."""
        listed = self._ask(lambda seconds: self.consumer.list_topics(topic, timeout=seconds), f"looking for {topic}")
        return self._counted(listed, topic)

    def _counted(self, listed: Any, topic: str) -> int | None:
        found = listed.topics.get(topic)
        if found is None:  # an old broker may leave out what it does not know
            return None
        if found.error is None:
            self._found.add(topic)
            return len(found.partitions)
        if found.error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION):
            return None
        raise failure(found.error, f"looking for topic {topic}", f"Describe (part of Read and Write) on topic {topic}")

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """Return (start, end) as of now; the end as a reader of committed messages sees it."""
        at, topic = KafkaPartition(*partition), partition.topic
        unknown_s: float | None = None  # when a broker first said so: before, there may have been none to ask

        def question(seconds: float) -> tuple[int, int] | None:
            nonlocal unknown_s
            try:
                return self.consumer.get_watermark_offsets(at, timeout=seconds)
            except KafkaException as error:
                if error.args[0].code() not in UNKNOWN:
                    raise
                # the client forgets topics when it loses its last broker, and a broker may not know a new one yet
                if self._counted(self.consumer.list_topics(topic, timeout=seconds), topic) is None:
                    unknown_s = time.monotonic() if unknown_s is None else unknown_s
                    if topic not in self._found or time.monotonic() - unknown_s > SPREAD_S_MAX:
                        raise
                return None

        found: tuple[int, int] = self._ask(
            question,
            f"looking for the bounds of {partition}",
            f"Describe (part of Read and Write) on topic {topic}",
            [topic],
        )
        return found

    def all_bounds(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the bounds of each, with two questions to each broker; what that leaves open is asked for alone."""
        if len(partitions) < 2:
            return {partition: self.bounds(partition) for partition in partitions}

        def question(seconds: float) -> list[list[KafkaPartition]]:
            sides = ([KafkaPartition(*each, side) for each in partitions] for side in (OFFSET_BEGINNING, OFFSET_END))
            try:
                return [self.consumer.offsets_for_times(side, timeout=seconds) for side in sides]
            except KafkaException as error:  # the client forgets topics when it loses its last broker
                if error.args[0].code() not in UNKNOWN:
                    raise
                self.consumer.list_topics(partitions[0].topic, timeout=seconds)  # raises if none answers
                return [[], []]

        topics = sorted({partition.topic for partition in partitions})
        access = f"Describe (part of Read and Write) on the topics {', '.join(topics)}"
        starts, ends = self._ask(question, f"looking for the bounds of {len(partitions)} partitions", access, topics)
        sides = zip(partitions, starts, ends, strict=False)
        found = {each: (start.offset, end.offset) for each, start, end in sides if start.error is end.error is None}
        return {partition: found.get(partition) or self.bounds(partition) for partition in partitions}

    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """Return the offset of the first message with this timestamp or a later one; -1 if there is none."""
        at = KafkaPartition(*partition, max(0, timestamp_ms))  # to Kafka a negative time means an end

        def question(seconds: float) -> int:
            found = self.consumer.offsets_for_times([at], timeout=seconds)[0]
            if found.error is not None:
                raise KafkaException(found.error)
            return int(found.offset)

        topic = partition.topic
        answer: int = self._ask(question, f"looking for a time in {partition}", f"Describe on topic {topic}", [topic])
        return answer

    def group_offsets(self, partitions: Sequence[KafkaPartition]) -> BrokerQuery:
        """Ask the coordinator of the consumer's group for its offsets; return the question, and wait for nothing."""
        group = self._group = self._group or self._troubles.made(Consumer, self._config)
        self._positions = BrokerQuery(lambda: group.committed(list(partitions), timeout=ANSWER_S))
        return self._positions

    def waits(self) -> None:
        """Note that a broker owes an answer: it is said once a minute."""
        self._patience.waits(f"Kafka at {self._bootstrap}", self._troubles.last)

    def answered(self) -> None:
        """Note that a broker has answered."""
        self._patience.answered(f"Kafka at {self._bootstrap}")

    def no_answer(self, began_s: float) -> FrameworkError:
        """Return the error for brokers that have not answered since ``began_s``."""
        patience = self._patience
        diagnose = not (patience.brief or patience.ended)
        return self._troubles.no_answer(self._bootstrap, patience.clock_s() - began_s, diagnose=diagnose)

    def close(self) -> None:
        """Disconnect; questions that are still asked need the client to their end."""
        close: Callable[[], None] = self.consumer.close
        for question in (self._asking, self._probe):
            if question is not None and not question.over(0):
                close = partial(question.then, close)
        close()
        if self._group is not None and self._positions is not None:
            self._positions.then(self._group.close)

    def _ask(self, question: Callable[[float], Any], doing: str, access: str = "", topics: Sequence[str] = ()) -> Any:
        """Return the broker's answer; ask again while it is away. ``topics``: those whose leaders are asked."""
        began = self._patience.clock_s()
        afresh = partial(self._leaders_afresh, topics, question)
        while True:
            asked = time.monotonic()
            try:
                answer = self._ask_slowly(question, began) if self._late else self._ask_at_once(question, began)
                if answer is not None:
                    self._troubles.refused = None  # one broker's trouble, or over
                    self.answered()
                    return answer
            except KafkaException as error:
                if error.args[0].code() not in AWAY:
                    raise failed(error, doing, access) from error
            self._late, question = True, afresh
            self._wait_on(began)
            time.sleep(max(0.0, 0.05 - (time.monotonic() - asked)))  # some errors come back at once

    def _leaders_afresh(self, topics: Sequence[str], question: Callable[[float], Any], seconds: float) -> Any:
        """Find out who leads the topics, then ask.

        A client that reads nothing goes on asking a leader that is dead: only what it reads makes it look for another.
        """
        for topic in topics:
            self.consumer.list_topics(topic, timeout=seconds)
        return question(seconds)

    def _ask_at_once(self, question: Callable[[float], Any], began_s: float) -> Any:
        """Return the answer of a broker that is near. A question that a thread asks already is waited for first."""
        while not self._in_use.acquire(timeout=SLICE_S):
            self._wait_on(began_s)
        try:
            return question(SLICE_S)
        finally:
            self._in_use.release()

    def _ask_slowly(self, question: Callable[[float], Any], began_s: float) -> Any:
        """Return the answer of a broker that takes longer than a process may wait in one go."""
        while not (self._asking is None or self._asking.over(SLICE_S)):  # one that was given up before
            self._wait_on(began_s)
        asked_s = time.monotonic()
        self._asking = asking = self._asked(lambda: question(ANSWER_S))
        while not asking.over(SLICE_S):
            self._wait_on(began_s)
        self._late = time.monotonic() - asked_s > SLICE_S
        return asking.answer()

    def _wait_on(self, began_s: float) -> None:
        """Note that there is no answer yet. Raises LogAway once it is waited for no longer: soon, if none ever came."""
        self._take_errors()  # a client that is refused would ask on and on
        self.waits()
        if self._troubles.refused is not None or self._patience.over(
            began_s, connecting=not self._patience.has_answered
        ):
            raise self.no_answer(began_s)

    def _asked(self, ask: Callable[[], Any]) -> BrokerQuery:
        """Ask in a thread, once no other one asks."""

        def alone() -> Any:
            with self._in_use:
                return ask()

        return BrokerQuery(alone)

    def _take_errors(self) -> None:
        """Let the client say by its callback what is wrong, unless a question is under way: then there is no poll."""
        if self._in_use.acquire(blocking=False):
            try:
                self.consumer.poll(0)
            finally:
                self._in_use.release()
