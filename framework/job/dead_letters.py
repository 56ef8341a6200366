"""The dead letters of a job: reading them, and sending their records to the input topic again, each once."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

from grete.api.jobs.job import Job
from grete.api.serdes.serde import Serde, bytes_serde, placing_of, topic_serde, utf8
from grete.api.stateful.interval_join import IntervalJoin
from grete.api.stateful.windows import WindowStore
from grete.api.topics.topic import DeadLetter
from grete.core.changelog.damage import entry
from grete.core.graph.partitioners import Partitioner
from grete.errors import ConfigError, Halted
from grete.halts import HaltCode
from grete.job.key_metadata import pinned, rescaled
from grete.job.redriven_outputs import RedrivenOutputs
from grete.logs.partition_reader import rows_left
from grete.ports import ExternalRecord, JobLog, LogReader, LogRow, MetadataReader
from grete.protocol.errors import DecodeError
from grete.protocol.frames import decode_headers, encode_headers
from grete.protocol.ids import TopicPartition

REDRIVE_RECORDS = 500  # of one transaction: as many as librdkafka gets in one go
REDRIVE_BYTES = 4 * 1024 * 1024  # of one transaction: a fraction of what librdkafka holds
FIRST = "grete.error"  # of the headers that a dead letter has behind those of its record
_KEY = "redriven/"  # metadata: which letters were sent again


class Letter(NamedTuple):
    """A dead letter. ``at``, ``offset``: its place in the dead-letter topic; ``source``: where its record was read."""

    at: TopicPartition
    offset: int
    timestamp_ms: int  # the record's own
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]  # those that the record came with
    told: dict[str, str]  # the headers that Grete adds (grete.api.topics.topic.DeadLetter), without their "grete."

    @property
    def topic(self) -> str:
        """Return the topic that the record was read from; empty: a timer, window, join or output failed."""
        return self.told.get("topic", "")

    @property
    def error_class(self) -> str:
        """Return the class of the error, without what it says, which may have the record's value in it."""
        return self.told["error"].partition(":")[0]

    @property
    def origin(self) -> str:
        """Return the name of what failed: a topic's, "window NAME", "join NAME", "output ATTRIBUTE" or "timer"."""
        owners = [f"{what} {self.told[what]}" for what in ("window", "join", "output") if what in self.told]
        return self.topic or next(iter(owners), "timer")


def letter_of(at: TopicPartition, row: LogRow) -> Letter | None:
    """Return the letter in a row of a dead-letter topic, None if the row is another's. Raises Halted: it is damaged."""
    try:
        headers = () if row.headers is None else decode_headers(row.headers)
    except DecodeError as error:
        raise Halted(
            f"{at}, offset {row.offset}: the headers of this record cannot be decoded: {error}: restore the topic",
            partition=at,
            offset=row.offset,
            code=HaltCode.BYTES_DAMAGED,
        ) from error
    names = [name for name, _ in headers]
    if FIRST not in names:
        return None
    begin = len(names) - 1 - names[::-1].index(FIRST)  # the last one: the record may have been a letter itself
    told = {name.removeprefix("grete."): (value or b"").decode(errors="replace") for name, value in headers[begin:]}
    timestamp = told.get("timestamp", "")
    timestamp_ms = int(timestamp) if timestamp.lstrip("-").isdecimal() else row.timestamp_ms
    return Letter(at, row.offset, timestamp_ms, row.key, row.value, headers[:begin], told)


def letters(log: LogReader, job: Job) -> Iterator[Letter]:
    """Yield the letters that the dead-letter topics of a job hold, in the order of their partitions."""
    for topic in dict.fromkeys(each.name for stage in job.stages for each in stage.dead_letters()):
        for number in range(log.partitions(topic) or 0):
            yield from letters_in(log, TopicPartition(topic, number))


def letters_in(log: LogReader, at: TopicPartition) -> Iterator[Letter]:
    """Yield the letters of one partition, as it is now."""
    start, end = log.bounds(at)
    found = (letter_of(at, row) for row in rows_left(log, at, start, end))
    yield from (letter for letter in found if letter is not None)


def serdes_of(job: Job, letter: Letter) -> tuple[Serde[Any], Serde[Any]]:
    """Return the serdes of key and value of what failed, as the code declares it; else those of bytes."""
    for stage in job.stages:
        if letter.topic:
            found = [(topic.key, topic.value) for topic in stage.topics_read() if topic.name == letter.topic]
        elif "output" in letter.told:
            outputs = stage.outputs if stage.name == letter.told.get("stage") else {}
            found = [
                (bytes_serde, each.target.value) for name, each in outputs.items() if name == letter.told["output"]
            ]
        else:
            owners = stage.stateful.values() if stage.name == letter.told.get("stage") else ()
            windows = [w for w in owners if isinstance(w, WindowStore) and w.name == letter.told.get("window")]
            joins = [j for j in owners if isinstance(j, IntervalJoin) and j.name == letter.told.get("join")]
            found = [(window.key, window.value) for window in windows]
            side = letter.told.get("side", "")
            found += [(join.key, join.serdes[side]) for join in joins if side in join.serdes]
            if "key_serde" in letter.told:  # else of release 0.2.0, which wrote keys as stores have them
                found = [(topic_serde(key), value) for key, value in found]
        if found:
            return found[0]
    return (utf8, bytes_serde) if "timer" in letter.told else (bytes_serde, bytes_serde)


class Offsets:
    """A set of offsets, kept as ranges: most letters are sent again in their order."""

    def __init__(self, text: bytes | None = None) -> None:
        """``text``: what ``encode`` gave, such as ``0-4,7``."""
        self._ranges: list[tuple[int, int]] = []
        for each in [] if text is None else text.decode().split(","):
            first, _, last = each.partition("-")
            self._ranges.append((int(first), int(last or first)))

    def __contains__(self, offset: int) -> bool:
        place = bisect_right(self._ranges, (offset, offset)) - 1
        return any(first <= offset <= last for first, last in self._ranges[max(place, 0) : place + 2])

    def add(self, offset: int) -> None:
        """Take an offset in."""
        if offset in self:
            return
        place = bisect_right(self._ranges, (offset, offset))
        first = last = offset
        if place < len(self._ranges) and self._ranges[place][0] == offset + 1:
            last = self._ranges.pop(place)[1]
        if place and self._ranges[place - 1][1] == offset - 1:
            first = self._ranges.pop(place - 1)[0]
            place -= 1
        self._ranges.insert(place, (first, last))

    def encode(self) -> bytes:
        """Return the set as text."""
        return ",".join(f"{a}-{b}" if b > a else str(a) for a, b in self._ranges).encode()


def redriven(metadata: MetadataReader, at: TopicPartition) -> Offsets:
    """Return the offsets of the letters of a partition that were sent again."""
    key = f"{_KEY}{at.topic}/{at.partition}"
    with entry(key):
        return Offsets(metadata.meta_get(key))


def _of_several_letters(job: Job) -> set[str]:
    """Return the topics of which a record may have several letters: of two stages, or of tasks that read them whole."""
    asides = Counter[str]()
    for stage in job.stages:
        for declared in stage.inputs.values():
            if isinstance(declared.errors, DeadLetter):
                asides[declared.topic.name] += stage.partitions if declared.broadcast else 1
    return {topic for topic, count in asides.items() if count > 1}


def _record_id(letter: Letter) -> int:
    """Return the identity of a letter's record; its offset alone is also that of one from a history."""
    return hash((letter.told.get("source"), letter.told.get("offset"), letter.timestamp_ms, letter.key, letter.value))


class Redrive:
    """One run of ``grete dlq redrive``. ``sent``, ``left``, ``again``: letters by what failed (``Letter.origin``).

    ``places``: the partitions that hold letters. ``outputs``: the way of refused outputs back to their sinks.
    """

    def __init__(self, job: Job, log: JobLog) -> None:
        """Become the one that sends letters of this job: on Kafka, another one that is at it is fenced."""
        self._job, self._log = job, log
        self._metadata = log.open_metadata(job.name, transactional=f"{job.name}.redrive")
        self._inputs = {topic for stage in job.stages for topic in job.topology().externals_of(stage.ordinal)}
        self._place = _placements(job, pinned(self._metadata, self._inputs))
        self._moved = any(rescaled(self._metadata, job, stage) is not None for stage in job.stages)
        self.sent, self.left, self.again = Counter[str](), Counter[str](), Counter[str]()
        self.outputs = RedrivenOutputs(job, self._metadata)
        topics = dict.fromkeys(each.name for stage in job.stages for each in stage.dead_letters())
        self.places = [TopicPartition(topic, n) for topic in topics for n in range(log.partitions(topic) or 0)]
        # records that were sent, of each topic of which a record may have several letters
        self._known = {topic: set[int]() for topic in _of_several_letters(job)}

    def run(self, wanted: Callable[[Letter], bool]) -> Iterator[int]:
        """Send the records of the letters that are wanted; yield how many so far, after each transaction.

        Each record goes out in one transaction with the note that it did, so a run that is killed at any moment can be
        repeated. Letters of timers, windows and joins, and of records that came from a stream between stages, are left.
        A record that several tasks have refused has as many letters, and goes out once (``again``: the others). An
        output goes to its sink. Raises as that does, TransientError, Halted or ConfigError.
        """
        for at in self.places if self._known else ():
            done = redriven(self._metadata, at)
            for each in letters_in(self._log, at):
                if each.offset in done and each.topic in self._known:
                    self._known[each.topic].add(_record_id(each))
        with closing(self.outputs):
            for at in self.places:
                yield from self._on_its_way(at)
                yield from self._partition(at, wanted)

    def _on_its_way(self, at: TopicPartition) -> Iterator[int]:
        """Take up the letter that a run before this one was giving to its sink when it ended. Raises ConfigError."""
        if (offset := self.outputs.on_its_way(at)) < 0:
            return
        letter = next((each for each in letters_in(self._log, at) if each.offset == offset), None)
        if letter is None:  # its time is over
            self._metadata.produce_with_meta([], self.outputs.taken(at), sync=True)
        elif not self.outputs.goes_back(letter.told.get("stage", ""), letter.told["output"]):
            raise ConfigError(
                f"{at}: a run before this one ended while it gave letter {offset} to {letter.origin} of stage "
                f"{letter.told.get('stage')!r}, and the code has no such output any more: whether its sink has it is "
                "not known: put the output back, and redrive again"
            )
        else:
            yield from self._to_sink(letter, redriven(self._metadata, at))

    def _to_sink(self, letter: Letter, done: Offsets) -> Iterator[int]:
        if not self.outputs.goes_back(letter.told.get("stage", ""), letter.told["output"]):
            self.left[letter.origin] += 1
        elif self.outputs.send(letter.at, letter.offset, letter.told, letter.value or b""):
            done.add(letter.offset)
            self.sent[letter.origin] += 1
            yield self._commit(letter.at, [], done, self.outputs.taken(letter.at))
        else:
            self.outputs.refused[letter.origin] += 1

    def _partition(self, at: TopicPartition, wanted: Callable[[Letter], bool]) -> Iterator[int]:
        done = redriven(self._metadata, at)
        batch: list[ExternalRecord] = []
        size, noted = 0, 0
        for letter in letters_in(self._log, at):
            if letter.offset in done or not wanted(letter):
                continue
            if "output" in letter.told:
                if batch or noted:
                    yield self._commit(at, batch, done)  # else ``done`` would have what is not sent yet
                    batch, size, noted = [], 0, 0
                yield from self._to_sink(letter, done)
                continue
            if letter.topic not in self._inputs:
                self.left[letter.origin] += 1
                continue
            done.add(letter.offset)
            if letter.topic in self._known:
                if (record := _record_id(letter)) in self._known[letter.topic]:
                    self.again[letter.topic] += 1
                    noted += 1
                    continue
                self._known[letter.topic].add(record)
            batch.append(self._record(letter))
            size += len(letter.key or b"") + len(letter.value or b"")
            self.sent[letter.topic] += 1
            if len(batch) >= REDRIVE_RECORDS or size >= REDRIVE_BYTES:
                yield self._commit(at, batch, done)
                batch, size, noted = [], 0, 0
        if batch or noted:
            yield self._commit(at, batch, done)

    def _commit(
        self, at: TopicPartition, batch: list[ExternalRecord], done: Offsets, with_it: Mapping[str, bytes | None] = {}
    ) -> int:
        meta = {f"{_KEY}{at.topic}/{at.partition}": done.encode(), **with_it}
        self._metadata.produce_with_meta(batch, meta, sync=True)
        return self.sent.total()

    def _record(self, letter: Letter) -> ExternalRecord:
        """Return the record as it came: into its partition, or after a rescale into that of its key."""
        partitions = self._log.partitions(letter.topic) or 1
        number = int(letter.told.get("source", "[0]").rpartition("[")[2].rstrip("]"))
        if letter.key is not None and (self._moved or number >= partitions):
            place = self._place[letter.topic](letter.key, partitions)
            number = number if place is None else place
        cell = encode_headers(letter.headers) if letter.headers else None
        at = TopicPartition(letter.topic, number % partitions)
        return ExternalRecord(at, letter.key, letter.value, letter.timestamp_ms, cell)


def _placements(job: Job, known: Mapping[str, Partitioner]) -> dict[str, Callable[[bytes, int], int | None]]:
    """Return topic → where its keys belong, None if only the producer knows."""
    found: dict[str, Callable[[bytes, int], int | None]] = {}
    for topic in (topic for stage in job.stages for topic in stage.topics_read()):
        place, placing = known.get(topic.name, Partitioner.MURMUR2).place, placing_of(topic.key)
        found[topic.name] = place if placing is None else partial(_placed, placing, place)
    return found


def _placed(
    placing: Callable[[bytes], bytes], place: Callable[[bytes, int], int | None], key: bytes, partitions: int
) -> int | None:
    return place(placing(key), partitions)
