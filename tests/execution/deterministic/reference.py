"""The expected outputs of the job of words.py, from its sources' decisions alone (D2)."""

from collections.abc import Callable
from typing import NamedTuple

from grete import Job
from grete.api.topics.reader import origin_of
from grete.ports import Log, LogRow
from grete.protocol.changelog import ChangelogType, InputDecision, decode_changelog_header, decode_input_decision
from grete.protocol.frames import decode_headers
from grete.protocol.ids import TopicPartition, producer_id
from grete.protocol.partitioner import partition_of


class Sent(NamedTuple):
    """A record as it is in an output topic."""

    key: bytes
    value: bytes
    t: int
    producer: str
    seq: int


def rows_of(log: Log, partition: TopicPartition) -> list[LogRow]:
    """Return all that is in a partition."""
    rows: list[LogRow] = []
    position = log.bounds(partition)[0]
    while more := log.read(partition, position, 1 << 20):
        rows += more
        position = more[-1][0] + 1
    return rows


def decisions(log: Log, changelog: TopicPartition) -> list[InputDecision]:
    """Return the valid decisions of a source (C2)."""
    top, found = 0, []
    for row in rows_of(log, changelog):
        header = decode_changelog_header(row.value or b"")
        if header.generation >= top:
            top = header.generation
            if header.type is ChangelogType.INPUT_DECISION:
                found.append(decode_input_decision(row.value or b""))
    return found


def expected(log: Log, job: Job, split: Callable[[str], list[tuple[str, str]]]) -> dict[int, list[Sent]]:
    """Return the records that must be in each partition of the output topic; ``split``: the results of a line."""
    streams: dict[int, list[tuple[int, int, str, str]]] = {p: [] for p in range(job.partitions)}
    topology = job.topology()
    for source in range(job.partitions):
        external = TopicPartition(topology.externals_of(0)[0], source)
        rows = {row.offset: row for row in rows_of(log, external)}
        for decision in decisions(log, TopicPartition(topology.changelog(0), source)):
            offsets = [offset for offset in sorted(rows) if offset >= decision.first_offset][: decision.records]
            for index, offset in enumerate(offsets):
                for key, value in split((rows.pop(offset)[4] or b"").decode()):
                    place = partition_of(key.encode(), job.partitions)
                    streams[place].append((decision.first_t + index, producer_id(0, source), key, value))
        assert not rows, f"{external}: {len(rows)} records were in doubt on"
    found: dict[int, list[Sent]] = {p: [] for p in range(job.partitions)}
    for partition, stream in streams.items():
        stream.sort(key=lambda record: record[:2])  # stable: the records of one line stay in their order
        for count, (t, _, key, value) in enumerate(stream, 1):
            made = f"{count} {value} {t}".encode()
            found[partition].append(Sent(key.encode(), made, t, f"{job.name}/{job.stages[1].name}-{partition}", count))
    return found


def sent(log: Log, topic: str, partitions: int) -> dict[int, list[Sent]]:
    """Return the records in each partition of the output topic."""
    found: dict[int, list[Sent]] = {}
    for partition in range(partitions):
        found[partition] = []
        for _, _, _, key, value, cell in rows_of(log, TopicPartition(topic, partition)):
            origin = origin_of(decode_headers(cell or b""))
            assert origin is not None
            found[partition].append(Sent(key or b"", value or b"", origin.t, origin.producer, origin.seq))
    return found
