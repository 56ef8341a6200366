"""Committed results of a job, also as text, for tests: records of topics, what sinks took, content of stores."""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from grete.api.jobs.graph import StageGraph, stage_name
from grete.api.jobs.versions import as_declared
from grete.api.record import Record
from grete.api.serdes.key import Key, partition_by
from grete.api.sinks.table import Table
from grete.api.stateful.declaration import Stateful, no_store
from grete.api.store import Store
from grete.api.tasks.task import Task
from grete.api.topics.topic import Output, Topic, TopicPattern
from grete.errors import ConfigError
from grete.execution.records.decoding import reader_of
from grete.execution.sinks.sink_targets import SinkTarget, target_of
from grete.protocol.ids import TopicPartition
from grete.testing.given import Given
from grete.testing.job_host import JobHost

K = TypeVar("K")
V = TypeVar("V")

SHOWN = "grete.error"  # of our own headers: others have a place in the job, a line of code or a logical time in them
_ADDRESS = re.compile(r" at 0x[0-9a-f]+>")  # in the text of an object whose class has none of its own

StageRef = str | type[Task]


def name_of(stage: StageRef) -> str:
    """Return the name of a stage that is given by it or by its class."""
    return stage if isinstance(stage, str) else stage_name(stage)


class Results:
    """The topics outside of a job, and its stores."""

    def __init__(self, host: JobHost, given: Given) -> None:
        self._host, self._given = host, given
        self._job = host.job

    # --- Topics ---

    def inputs(self) -> list[str]:
        """Return the topics that the job reads from outside, sorted."""
        topics = self._job.topology().external_inputs.values()
        return sorted({topic for names in topics for topic in names})

    def of(self, topic: Topic[K, V], partition: int | None, *, written: bool) -> list[Record[K, V]]:
        """Return the records of a topic, or of one partition. Raises ConfigError: it is none of the job's."""
        if not isinstance(topic, Topic):
            raise ConfigError(f"{topic!r} is no Topic: give the topic itself, or a task's Output to something else")
        return self.records(topic, self.partitions(topic.name, partition, written=written))

    def partitions(self, topic: str, partition: int | None, *, written: bool) -> range:
        """Return the partitions of a topic, or the one that is meant. Raises ConfigError, ``written`` by the job."""
        known = [*self._job.external_sinks(), *self._named()] if written else self.inputs()
        count = self._host.history.log.partitions(topic)
        if count is None or topic not in known:
            refusal = "is not written to the outside" if written else "is not fed from outside"
            raise ConfigError(
                f"topic {topic!r} {refusal} in job {self._job.name!r}; these are: {', '.join(known) or 'none'}"
            )
        if partition is None:
            return range(count)
        if not 0 <= partition < count:
            raise ConfigError(f"topic {topic} has partitions 0 to {count - 1}, not {partition}")
        return range(partition, partition + 1)

    def records(self, topic: Topic[K, V], partitions: Iterable[int]) -> list[Record[K, V]]:
        """Return the records of a topic outside, as a reader gets them, partition by partition."""
        record_of = reader_of(topic)
        return [
            record_of(partition, row)
            for partition in partitions
            for row in self._host.history.data.partition(TopicPartition(topic.name, partition)).rows
        ]

    # --- Files, tables, services ---

    def given(self, of: Output[Any, Any], partition: int | None) -> list[Any]:
        """Return the values that tasks have given to what is no topic, by stage and partition. Raises ConfigError.

        Of a TopicPattern the records of its topics, one topic after another.
        """
        if isinstance(of.target, TopicPattern):
            topics = self._of_pattern(of.target)
            return [each for topic in topics for each in self.of(topic, partition, written=True)]
        return [
            value
            for stage, attribute, target in self._outputs(of)
            for number in (range(stage.partitions) if partition is None else [partition])
            for _, value in self._given_by(stage.check_partition(number), number, attribute, target)
        ]

    def _named(self) -> dict[str, Topic[Any, Any]]:
        """Return name → topic of those that records have named."""
        known = self._host.history.names.known
        found = {t: pattern for name, pattern in self._job.patterns().items() for t in known[name]}
        return {topic: Topic(topic, found[topic].key, found[topic].value) for topic in sorted(found)}

    def _of_pattern(self, pattern: TopicPattern[Any, Any]) -> list[Topic[Any, Any]]:
        return [topic for topic in self._named().values() if pattern.makes(topic.name)]

    def _outputs(self, of: Output[Any, Any]) -> list[tuple[StageGraph, str, SinkTarget]]:
        """Return the places of an output in the job: stage, attribute, target. Raises ConfigError."""
        found = [
            (stage, attribute, output.target)
            for stage in self._job.stages
            for attribute, output in stage.outputs.items()
            if of in (output, as_declared(output)) and not isinstance(output.target, Topic | TopicPattern)
        ]
        if not found:
            raise ConfigError(f"no stage of job {self._job.name!r} has the output to {of.target!r}")
        return found

    def _given_by(
        self, stage: StageGraph, partition: int, attribute: str, target: SinkTarget
    ) -> list[tuple[bytes, Any]]:
        name = target_of(attribute, target).partition(":")[2]
        raws = self._given.of(f"{stage.name}-{partition}", name)
        return [(raw, target.value.decode(raw)) for raw in raws]

    # --- Stores ---

    def state(self, store: object, partition: int | None, stage: StageRef | None) -> dict[Any, Any]:
        """Return the committed content of a store, of one partition or all. Raises ConfigError."""
        pairs = self.entries(store, partition, stage)
        try:
            return dict(pairs)
        except TypeError as error:
            raise ConfigError(
                f"state: a key such as {pairs[0][0]!r} cannot be the key of a dict in Python ({error}): "
                "kit.pairs(store) gives the entries as pairs"
            ) from error

    def entries(self, store: object, partition: int | None, stage: StageRef | None) -> list[tuple[Any, Any]]:
        """Return the entries of a store in key order. Raises ConfigError."""
        name, declared = self._find_store(store, stage)
        found = self._job.stage(name)
        numbers: Iterable[int] = range(found.partitions)
        if partition is not None:
            found.check_partition(partition)
            numbers = [partition]
        rows: dict[bytes, tuple[int, bytes]] = {}
        for number in numbers:
            for key, value in self._host.tasks[name, number].rows(declared):
                other, _ = rows.setdefault(key, (number, value))
                if other != number:
                    raise ConfigError(
                        f"state: key {declared.key.decode(key)!r} of store {declared.name!r} is in partitions {other} "
                        f"and {number}: say which partition"
                    )
        return [(declared.key.decode(key), declared.value.decode(value)) for key, (_, value) in sorted(rows.items())]

    def check_places(self) -> None:
        """Compare the first part of each Key in a store with the task that keeps it. Raises AssertionError.

        Stages are left out that read a topic whole, or records that were fed without a key or to a partition by hand.
        """
        for stage in self._job.stages:
            stores = [store for store in stage.all_stores() if isinstance(store.key, Key)]
            if not stores or stage.partitions == 1 or not self._is_fed_by_key(stage):
                continue
            for store, number in ((store, number) for store in stores for number in range(stage.partitions)):
                place = partition_by(store.key)
                for key, _ in self._host.tasks[stage.name, number].rows(store):
                    if (belongs := place(key, stage.partitions)) != number:
                        raise AssertionError(
                            f"store {stage.shown}/{store.shown}: partition {number} keeps the key "
                            f"{store.key.decode(key)!r}, whose first part belongs to partition {belongs}: the records "
                            "of that key do not find it there, and a rescale refuses it: write the record's key, or "
                            "its first part, as the first part; what belongs to a task and to no key needs another "
                            "serde than Key, such as json"
                        )

    def _is_fed_by_key(self, stage: StageGraph) -> bool:
        topics = {each.topic.name: each for each in stage.inputs.values() if each.topic.name in self.inputs()}
        for name, declared in topics.items():
            place, numbers = partition_by(declared.topic.key), self.partitions(name, None, written=False)
            for number in numbers:
                rows = self._host.history.data.partition(TopicPartition(name, number)).rows
                if any(row.key is None or place(row.key, len(numbers)) != number for row in rows):
                    return False
        return not any(each.broadcast for each in stage.inputs.values())

    def _find_store(self, store: object, stage: StageRef | None) -> tuple[str, Store[Any, Any]]:
        stages = self._job.stages if stage is None else [self._job.stage(name_of(stage))]
        found = [
            (each.name, declared)
            for each in stages
            for declared in each.all_stores()
            if store in (declared, as_declared(declared), declared.name)
        ]
        if not found and isinstance(store, Stateful):
            raise ConfigError(f"state: {no_store(store)}")
        if len(found) != 1:
            where = " in several stages: say which" if found else ": is it declared in a stage of this job?"
            raise ConfigError(f"state: store {getattr(store, 'name', store)!r} is found {len(found)} times{where}")
        return found[0]

    # --- Text ---

    def text(self, wanted: Iterable[object]) -> str:
        """Return topics and stores as text: of each partition the records of each key in their order, key by key."""
        sections = [self._section(each) for each in wanted or self._all()]
        return "\n".join(line for section in sections for line in section) + "\n"

    def _all(self) -> Iterator[object]:
        yield from (self._job.external_sinks() | self._named()).values()
        yield from (each for stage in self._job.stages for each in stage.outputs.values() if not _is_topic(each))
        for stage in self._job.stages:
            for store in stage.all_stores():
                yield stage.name, store

    def _section(self, wanted: object) -> Iterator[str]:
        if isinstance(wanted, Topic):
            for partition in self.partitions(wanted.name, None, written=True):
                yield f"topic {wanted.name}, partition {partition}"
                yield from self._records(wanted, partition)
            return
        if isinstance(wanted, Output):
            yield from self._values(wanted)
            return
        name, declared = wanted if isinstance(wanted, tuple) else self._find_store(wanted, None)
        for partition in range(self._job.stage(name).partitions):
            yield f"store {name}/{declared.name}, partition {partition}"
            for raw_key, raw_value in sorted(self._host.tasks[name, partition].rows(declared)):
                key, value = declared.key.decode(raw_key), declared.value.decode(raw_value)
                yield f"  {_shown(key, raw_key)}: {_shown(value, raw_value)}"

    def _records(self, topic: Topic[Any, Any], partition: int) -> Iterator[str]:
        rows = self._host.history.data.partition(TopicPartition(topic.name, partition)).rows
        pairs = zip(rows, self.records(topic, [partition]), strict=True)
        for row, record in sorted(pairs, key=lambda pair: (pair[0].key is not None, pair[0].key or b"")):
            pair = f"{_shown(record.key, row.key)}: {_shown(record.value, row.value)}"
            theirs = [f"{name}={value!r}" for name, value in record.headers if _is_shown(name)]
            yield "  ".join(["", _moment(record.timestamp), pair, *theirs])

    def _values(self, wanted: Output[Any, Any]) -> Iterator[str]:
        """Yield the lines of the values of each task, sorted; of a table with a key the last row of each."""
        if isinstance(wanted.target, Topic):
            yield from self._section(wanted.target)
            return
        if isinstance(wanted.target, TopicPattern):
            yield from (line for t in self._of_pattern(wanted.target) for line in self._section(t))
            return
        for stage, attribute, target in self._outputs(wanted):
            for partition in range(stage.partitions):
                yield f"output {stage.name}/{attribute}, partition {partition}"
                values = self._given_by(stage, partition, attribute, target)
                if isinstance(target, Table) and target.key:
                    values = list({_key_of(target, value): (raw, value) for raw, value in values}.values())
                yield from sorted(f"  {_shown(value, raw)}" for raw, value in values)


def _key_of(table: Table[Any], row: Any) -> str:
    """Return the fields of a row that are its key, as text."""
    fields = [field for field, column in table.mapping().items() if column in table.key]
    return repr([row[field] if isinstance(row, Mapping) else getattr(row, field) for field in fields])


def _is_topic(output: Output[Any, Any]) -> bool:
    return isinstance(output.target, Topic | TopicPattern)


def _is_shown(header: str) -> bool:
    return header == SHOWN or not (header == "grete" or header.startswith("grete."))


def _shown(value: object, raw: bytes | None) -> str:
    """Return a value as text that is the same in every process; else its bytes."""
    text = repr(value)
    return repr(raw) if _ADDRESS.search(text) else text


def _moment(timestamp_ms: int) -> str:
    """Return a timestamp as people read it, or the number if no calendar has it."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1_000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1_000:03}Z"
