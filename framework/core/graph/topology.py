"""The job's graph as the protocol sees it: stages, streams and partition counts by number. Plain data."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from grete.protocol.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: ``ordinal`` is its index in the job and half of its tasks' producer ids (1.2).

    ``counts``: of topics from outside that may have more partitions than it has tasks, how many these are (A2f).
    """

    name: str
    ordinal: int
    partitions: int
    counts: Mapping[str, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Stream:
    """One edge, producing stage → consuming stage, and its internal log topic.

    ``topic`` is the name in the log, ``user_topic`` the one in the job's code; ``partitions`` is the consumer's count.
    ``broadcast``: the producer sends each record to all of them, so that each task of the consumer has it (A2d).
    """

    topic: str
    producer: int
    consumer: int
    partitions: int
    user_topic: str = ""
    broadcast: bool = False


@dataclass(frozen=True, slots=True)
class Topology:
    """Stages in order of their ordinals, the streams between them, and the external topics that each stage reads.

    ``deterministic``: the ordinals of the stages in that mode (D1); what they write may be read by any stage.
    ``timed``: the ordinals of the stages with timers or windows, which go by event time (E1).
    ``bootstrap``: by stage, those of its external topics that it reads to their ends first (A2c).
    ``broadcast``: by stage, those of which each of its tasks reads all partitions, and how many these are (A2d).
    ``starts``: by stage, at which offset an external partition begins that no commit of its task has (A2).
    ``first``: the fingerprint of the graph that the job ran with first, which it keeps when stages are added last;
    None: this graph is the first. ``known``: more fingerprints under which the job has run.
    ``migrated``: the version of the serdes to which the job's state was brought; 0: it began with its version.
    """

    job: str
    stages: tuple[Stage, ...]
    streams: tuple[Stream, ...]
    external_inputs: Mapping[int, tuple[str, ...]] = field(
        default_factory=dict, hash=False
    )  # stage ordinal → topics; absent: none
    deterministic: frozenset[int] = frozenset()
    timed: frozenset[int] = frozenset()
    first: int | None = None
    known: frozenset[int] = frozenset()
    bootstrap: Mapping[int, frozenset[str]] = field(default_factory=dict, hash=False)  # absent: none
    broadcast: Mapping[int, Mapping[str, int]] = field(default_factory=dict, hash=False)  # absent: none
    starts: Mapping[int, Mapping[TopicPartition, int]] = field(default_factory=dict, hash=False)  # absent: the first
    migrated: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError unless ordinals are indexes, streams join stages of the job and stream topics are unique."""
        ordinals = range(len(self.stages))
        for index, stage in enumerate(self.stages):
            if stage.ordinal != index:
                raise ValueError(f"stage {stage.name!r} has ordinal {stage.ordinal} at index {index}: they must agree")
        for stream in self.streams:
            if stream.producer not in ordinals or stream.consumer not in ordinals:
                raise ValueError(
                    f"stream {stream.topic!r} joins stages {stream.producer} → {stream.consumer} of {len(self.stages)}"
                )
            if stream.partitions != self.stages[stream.consumer].partitions:
                raise ValueError(
                    f"stream {stream.topic!r} has {stream.partitions} partitions, its consumer another count"
                )
        topics = [stream.topic for stream in self.streams]
        for topic in topics:
            if topics.count(topic) > 1:
                raise ValueError(
                    f"stream topic {topic!r} is that of two edges: each (producer, topic, consumer) needs its own"
                )

    def fingerprint(self) -> int:
        """Return a non-negative INT64 over stages, edges and partition counts, equal in every process (1.2).

        After a migration also over the version of the serdes: what code of before would write is not read then.
        """
        lines = [f"{stage.ordinal} {stage.name} {stage.partitions}" for stage in self.stages]
        lines += sorted(
            f"{stream.producer} {stream.topic} {stream.consumer} {stream.partitions}" + " broadcast" * stream.broadcast
            for stream in self.streams
        )
        lines += [f"serdes {self.migrated}"] * bool(self.migrated)
        digest = hashlib.sha256("\n".join([self.job, *lines]).encode()).digest()
        return int.from_bytes(digest[:8], "big") >> 1

    def without_last(self, count: int) -> "Topology":
        """Return the graph of the first ``count`` stages, and of the streams between them."""
        return Topology(
            self.job,
            self.stages[:count],
            tuple(stream for stream in self.streams if max(stream.producer, stream.consumer) < count),
            {stage: topics for stage, topics in self.external_inputs.items() if stage < count},
            frozenset(stage for stage in self.deterministic if stage < count),
            migrated=self.migrated,
        )

    def fingerprints(self) -> frozenset[int]:
        """Return the fingerprints of all graphs of which this one is an extension, and its own (1.2).

        An extension adds stages after the others, which may read what those write, but not write what those read.
        """
        counts = [
            count
            for count in range(1, len(self.stages) + 1)
            if not any(stream.consumer < count <= stream.producer for stream in self.streams)
        ]
        return frozenset(self.without_last(count).fingerprint() for count in counts)

    def streams_into(self, stage: int) -> tuple[Stream, ...]:
        """Return the streams that the stage reads; none for a source (A1)."""
        return tuple(stream for stream in self.streams if stream.consumer == stage)

    def streams_out_of(self, stage: int) -> tuple[Stream, ...]:
        """Return the streams that the stage writes."""
        return tuple(stream for stream in self.streams if stream.producer == stage)

    def externals_of(self, stage: int) -> tuple[str, ...]:
        """Return the external topics that the stage reads."""
        return self.external_inputs.get(stage, ())

    def external_partitions(self, stage: int, partition: int) -> tuple[TopicPartition, ...]:
        """Return a task's external partitions: its own of each topic, and all of a broadcast topic.

        Its own are those whose numbers are its own modulo the number of tasks, so a key has one task whatever the
        number of partitions: that is a multiple (A2f).
        """
        whole = self.broadcast.get(stage, {})
        return tuple(
            TopicPartition(topic, number)
            for topic in self.externals_of(stage)
            for number in (range(whole[topic]) if topic in whole else self._own(stage, topic, partition))
        )

    def _own(self, stage: int, topic: str, partition: int) -> Iterable[int]:
        count = self.stages[stage].counts.get(topic)
        return (partition,) if count is None else range(partition, count, self.stages[stage].partitions)

    @property
    def counts(self) -> dict[str, int]:
        """Topic from outside → partitions, of those that have a number that is not that of the tasks (A2f)."""
        return {topic: count for stage in self.stages for topic, count in stage.counts.items()}

    def keyed_externals_of(self, stage: int) -> tuple[str, ...]:
        """Return the external topics of which each task reads the partitions of its keys: all but broadcast ones."""
        return tuple(topic for topic in self.externals_of(stage) if topic not in self.broadcast.get(stage, {}))

    def is_source(self, stage: int) -> bool:
        """Return whether the stage has no internal input that comes with markers (1.8 A1)."""
        without_markers = frozenset[int]() if stage in self.deterministic else self.deterministic
        return all(stream.producer in without_markers for stream in self.streams_into(stage))

    def keeps_time(self, stage: int) -> bool:
        """Return whether the stage's tasks keep event time: for themselves, or for a stage that they reach (E1)."""
        reached, found = {stage}, [stage]
        while found:
            new = {stream.consumer for stream in self.streams_out_of(found.pop())} - reached
            reached |= new
            found += new
        return bool(reached & self.timed)

    def changelog(self, stage: int) -> str:
        """Return the name of the stage's changelog topic; it has a partition per task."""
        return changelog_topic(self.job, self.stages[stage].name)


def changelog_topic(job: str, stage: str) -> str:
    """Return the name of the changelog topic of one stage."""
    return f"{job}.{stage}.changelog"


def stream_topic(job: str, producer: str, topic: str, consumer: str) -> str:
    """Return the name of the internal topic of one edge."""
    return f"{job}.{producer}.{topic}.{consumer}"
