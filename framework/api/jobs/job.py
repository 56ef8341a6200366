"""A job: stages joined by the topics that they share, checked as a whole when it is built."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from grete.api.jobs.dropped import DroppedParts
from grete.api.jobs.graph import StageGraph, describe
from grete.api.jobs.names import check_log_names, checked_count, checked_name, refuse_clashes
from grete.api.jobs.outside_topics import check_counts, check_patterns, declared_counts, refuse_outside_arguments
from grete.api.jobs.versions import NEWEST, in_version
from grete.api.serdes.serde import refuse_unread
from grete.api.tasks.mode import Mode
from grete.api.tasks.task import Task
from grete.api.topics.topic import Topic, TopicPattern
from grete.core.graph.topology import Stage, Stream, Topology, stream_topic
from grete.errors import GraphError
from grete.protocol.ids import TopicPartition


class Job:
    """Named stages that form an acyclic graph. ``partitions``: tasks of each stage that has no number of its own.

    A stream between stages has a partition for each task that reads it. Worker process n hosts the tasks with number n.

    A stage's index in ``stages`` is its ordinal, part of every producer id: between two runs, add new stages last
    (docs/guides/evolve.md).
    ``mode="deterministic"`` lets outputs leave at once instead of with the next commit
    (docs/explanation/deterministic.md).
    Raises GraphError, naming what to change, for a graph that cannot run. Nothing is opened or written.
    """

    _topology: Topology
    dropped = DroppedParts()  # what grete apply has taken out
    serdes = NEWEST  # the version by which it writes
    migrated: int | None = None  # the checkpoint from which on its state has that version; None: it began with it

    def __init__(self, name: str, stages: Sequence[type[Task]], partitions: int = 1, mode: Mode = "aligned") -> None:
        """Check and build the graph."""
        self.name = checked_name("job", name)
        self.partitions = checked_count(f"job {name!r}", partitions)
        if isinstance(stages, type):
            raise GraphError(f"job {name!r}: stages is a class and no list: stages=[{stages.__name__}]")
        if stages is not None and not isinstance(stages, Sequence):  # the order of a set is another in each process
            raise GraphError(f"job {name!r}: stages is a {type(stages).__name__} and no list: stages=[YourTask]")
        if not stages:
            raise GraphError(f"job {name!r} has no stages: Job({name!r}, stages=[YourTask])")
        self.mode = mode
        self.stages: tuple[StageGraph, ...] = tuple(
            describe(task, ordinal, mode, partitions) for ordinal, task in enumerate(stages)
        )
        names = [stage.name for stage in self.stages]
        refuse_clashes("stage", names, "give each its own name by the class attribute 'name'")
        renamed = [stage.shown for stage in self.stages if stage.shown != stage.name]
        refuse_clashes("stage", [*names, *renamed], "the first name of a stage is taken for good")
        self._check_topics()
        self._join()
        self._refuse_cycles()
        self._check_modes()
        check_log_names(self._topology, self.external_sinks())
        check_patterns(name, self.stages, self._topology, self.external_sinks())

    def topology(self) -> Topology:
        """Return the graph by number, as the protocol needs it."""
        return self._topology

    def keep_fingerprints(self, first: int | None, known: frozenset[int]) -> None:
        """Take over under which fingerprint the job first ran, and under which others: its producers' are ours then."""
        self._topology = replace(self._topology, first=first, known=known)

    def start_at(self, starts: Mapping[int, Mapping[TopicPartition, int]]) -> None:
        """Take over at which offsets inputs begin, by stage: the job's first start has settled it."""
        self._topology = replace(self._topology, starts=starts)

    def count_broadcast(self, count: Callable[[str], int | None]) -> None:
        """Take over how many partitions each topic has that tasks read whole; None: there is none yet (A2d).

        Until then it counts as having as many as the job would make. Call this before reading or running tasks of a
        job.
        """
        self._topology = replace(
            self._topology,
            broadcast={
                stage: {topic: count(topic) or self.count_of(topic) for topic in topics}
                for stage, topics in self._topology.broadcast.items()
            },
        )

    def stage(self, name: str) -> StageGraph:
        """Return the stage that has that name, or had it first. Raises GraphError if there is none."""
        for stage in self.stages:
            if name in (stage.name, stage.shown):
                return stage
        raise GraphError(
            f"job {self.name!r} has no stage {name!r}: it has {', '.join(stage.shown for stage in self.stages)}",
        )

    def external_sinks(self) -> dict[str, Topic[Any, Any]]:
        """Return name → topic of all that the job only writes, dead letters and public topics included."""
        read = {topic.name for stage in self.stages for topic in stage.topics_read()}
        written = (topic for stage in self.stages for topic in (*stage.topics_written(), *stage.dead_letters()))
        return {topic.name: topic for topic in written if topic.public or topic.name not in read}

    def patterns(self) -> dict[str, TopicPattern[Any, Any]]:
        """Return pattern → declaration of the topics that records name."""
        return {pattern.pattern: pattern for stage in self.stages for pattern in stage.patterns()}

    @property
    def workers(self) -> int:
        """Return the number of worker processes of the job: the number of tasks of its widest stage."""
        return max(stage.partitions for stage in self.stages)

    def tasks(self) -> list[tuple[StageGraph, int]]:
        """Return (stage, partition) of every task, stage by stage: the order of all that lists a job's tasks."""
        return [(stage, partition) for stage in self.stages for partition in range(stage.partitions)]

    def tasks_of(self, ordinal: int) -> slice:
        """Return the range of one stage's tasks within ``tasks``."""
        first = sum(stage.partitions for stage in self.stages[:ordinal])
        return slice(first, first + self.stages[ordinal].partitions)

    def count_of(self, topic: str) -> int:
        """Return with how many partitions the job makes a topic outside of it: as many as its declaration says.

        Else a stage that reads it by partition has a task for each; else they are as many as the widest stage has tasks
        that reads or writes it.
        """
        topology, declared = self._topology, declared_counts(self.stages)
        if topic in declared:
            return declared[topic]
        keyed = (stage for stage in self.stages if topic in topology.keyed_externals_of(stage.ordinal))
        reader = next(keyed, None)
        if reader is not None:
            return reader.partitions
        ends = (
            stage.partitions
            for stage in self.stages
            if topic in {each.name for each in (*stage.topics_read(), *stage.topics_written(), *stage.dead_letters())}
        )
        return max(ends, default=self.partitions)

    def of(self, partitions: int, stage: str | None = None) -> "Job":
        """Return the same job with another number of partitions, or with one for a ``stage`` alone. Raises GraphError.

        Stages with a number of their own keep it.
        """
        other = copy(self)
        other.recount(partitions, stage)
        return other

    def recount(self, partitions: int, stage: str | None = None) -> None:
        """Take over the numbers that ``of`` gives. Raises GraphError."""
        checked_count(f"job {self.name!r}", partitions)
        if stage is None:
            self.partitions = partitions
        self.stages = tuple(
            replace(each, partitions=partitions) if (each.name == stage if stage else each.follows_job) else each
            for each in self.stages
        )
        self._join()

    @property
    def live(self) -> tuple[StageGraph, ...]:
        """The stages without those that were dropped, which keep a place in ``stages`` and have no tasks."""
        return tuple(stage for stage in self.stages if stage.partitions)

    def pin(
        self,
        ids: Mapping[str, Mapping[str, int]],
        counts: Mapping[str, int],
        dropped: DroppedParts | None = None,
        times: Mapping[str, Mapping[str, str]] | None = None,
        serdes: int = NEWEST,
        *,
        migrated: int | None = None,
    ) -> None:
        """Take over what a job's first start has settled: ``ids`` by stage and store, partition counts by topic.

        ``times``: by stage and topic, which time the records of an input have. ``serdes``, ``migrated``: see those.
        ``dropped``: what grete apply has taken out, whose numbers are kept. What was pinned before is replaced. Call
        this before reading or writing state of a job that has run. Raises ConfigError: the code has what was dropped.
        """
        self.dropped = DroppedParts() if dropped is None else dropped
        self.dropped.refuse_again(self.stages)
        placed, before = self.dropped.placed(self.stages), [stage.name for stage in self.stages]
        self.stages = tuple(
            replace(
                stage,
                pinned_ids=dict(ids.get(stage.name, {})),
                pinned_counts=dict(counts),
                pinned_times=dict((times or {}).get(stage.name, {})),
            )
            for stage in placed
        )
        self.write_by(serdes)
        self.migrate(migrated)
        if [stage.name for stage in placed] != before:
            self._join()

    def write_by(self, serdes: int) -> None:
        """Write keys and values by a version of the serdes."""
        self.serdes, self.stages = serdes, tuple(in_version(stage, serdes) for stage in self.stages)

    def migrate(self, checkpoint_id: int | None) -> None:
        """Take over from which checkpoint on the state has the version of the serdes; None: from the first one on."""
        self.migrated = checkpoint_id
        self._topology = replace(self._topology, migrated=0 if checkpoint_id is None else self.serdes)

    def _check_topics(self) -> None:
        """Refuse a topic name with two meanings, and dead letters that would come back."""
        topics: dict[str, Topic[Any, Any]] = {}
        read = {topic.name: stage.name for stage in self.stages for topic in stage.topics_read()}
        for stage in self.stages:
            for topic in (*stage.topics_read(), *stage.topics_written(), *stage.dead_letters()):
                checked_name("topic", topic.name)
                known = topics.setdefault(topic.name, topic)
                for end, ours, theirs in (("key", topic.key, known.key), ("value", topic.value, known.value)):
                    if ours != theirs:
                        raise GraphError(
                            f"topic {topic.name!r} has two {end} serdes, {theirs.name} and {ours.name} "
                            f"(stage {stage.name!r}): declare the Topic once and share it",
                            stage=stage.name,
                        )
                for argument in ("public", "null", "partitions"):
                    ours, theirs = getattr(topic, argument), getattr(known, argument)
                    if ours != theirs:
                        raise GraphError(
                            f"topic {topic.name!r} has {argument}={theirs!r} in one declaration and {ours!r} in "
                            f"another (stage {stage.name!r}): declare the Topic once and share it",
                            stage=stage.name,
                        )
            for topic in stage.dead_letters():
                if topic.name in read:
                    raise GraphError(
                        f"dead-letter topic {topic.name!r} of stage {stage.name!r} is an input of stage "
                        f"{read[topic.name]!r}: use a topic that this job does not read",
                        stage=stage.name,
                    )
        refuse_clashes("topic", topics, "use names that differ in more than case")

    def _build_topology(self) -> Topology:
        """Join each topic's writers and readers: one stream per (producing stage, topic, consuming stage)."""
        streams = []
        external: dict[int, tuple[str, ...]] = {}
        for consumer in self.stages:
            for topic in consumer.topics_read():
                producers = [
                    stage for stage in self.stages if topic.name in {written.name for written in stage.topics_written()}
                ]
                if not producers:
                    external[consumer.ordinal] = (*external.get(consumer.ordinal, ()), topic.name)
                else:
                    refuse_outside_arguments(consumer, topic.name, producers[0].name)
                    for serde in (topic.key, topic.value):
                        refuse_unread(serde, f"topic {topic.name} between stages")
                for producer in producers:
                    log_topic = stream_topic(self.name, producer.name, topic.name, consumer.name)
                    to_all = topic.name in consumer.topics_broadcast()
                    ends = producer.ordinal, consumer.ordinal
                    streams.append(Stream(log_topic, *ends, consumer.partitions, topic.name, broadcast=to_all))
        refuse_clashes(
            "internal stream", (stream.topic for stream in streams), "rename a stage or topic: dots make them one"
        )
        counts = declared_counts(self.stages)
        stages = tuple(
            Stage(
                each.name,
                each.ordinal,
                each.partitions,
                {t: counts[t] for t in external.get(each.ordinal, ()) if t in counts.keys() - each.topics_broadcast()},
            )
            for each in self.stages
        )
        deterministic = frozenset(stage.ordinal for stage in self.stages if stage.mode == "deterministic")
        timed = frozenset(stage.ordinal for stage in self.stages if stage.goes_by_time)
        first = {stage.ordinal: stage.topics_read_first() for stage in self.stages}
        whole = {
            each.ordinal: {t: each.partitions for t in external.get(each.ordinal, ()) if t in each.topics_broadcast()}
            for each in self.stages
        }
        return Topology(
            self.name, stages, tuple(streams), external, deterministic, timed, bootstrap=first, broadcast=whole
        )

    def _join(self) -> None:
        self._topology = self._build_topology()
        self.migrate(self.migrated)
        check_counts(self.name, self.stages, self._topology)
        self.count_broadcast(lambda _topic: None)

    def _refuse_cycles(self) -> None:
        """Raise GraphError naming a cycle: markers would go round it forever (a job is acyclic)."""
        done: set[int] = set()

        def visit(stage: int, path: tuple[int, ...]) -> None:
            if stage in path:
                names = [self.stages[ordinal].name for ordinal in (*path[path.index(stage) :], stage)]
                raise GraphError(
                    f"job {self.name!r} has a cycle, {' → '.join(names)}: break it with a topic that another job writes"
                )
            if stage not in done:
                for stream in self._topology.streams_out_of(stage):
                    visit(stream.consumer, (*path, stage))
                done.add(stage)

        for stage in range(len(self.stages)):
            visit(stage, ())

    @property
    def modes(self) -> str:
        """Return the modes of its stages as the metadata has them.

        "aligned", "deterministic", or one for each stage.
        """
        modes = [stage.mode for stage in self.stages]
        return modes[0] if len(set(modes)) == 1 else ",".join(modes)

    def _check_modes(self) -> None:
        """Refuse a deterministic stage whose input is not a function of what the sources decided (D6)."""
        topology = self._topology
        for stage in self.stages:
            streams = topology.streams_into(stage.ordinal)
            if stage.mode == "deterministic" and streams:
                self._check_deterministic(stage, [self.stages[stream.producer] for stream in streams])

    def _check_deterministic(self, stage: StageGraph, producers: list[StageGraph]) -> None:
        where = f"stage {stage.name!r} is deterministic"
        for producer in producers:
            if producer.mode != "deterministic":
                raise GraphError(
                    f"{where} and reads what stage {producer.name!r} writes, which is not: what it repeats after a "
                    f"crash may differ. Make {producer.name!r} deterministic, or this stage aligned"
                )
        outside = self._topology.externals_of(stage.ordinal)
        if outside:
            raise GraphError(
                f"{where} and reads both a stream and topic {outside[0]!r} from outside: let a stage of its own read "
                "the topic and send it on"
            )
        if stage.batch:
            raise GraphError(
                f"{where}, reads a stream and has process_batch: how a stream is cut into batches depends on the "
                "moment. Define process(self, record)"
            )
