"""Tells whether a store's keys are the keys of records, for a job of one partition, where no key shows it.

``--assume-keyed`` says that the caller knows. With one partition a wrong answer would split state in silence: keys like
"shop1/tea" go elsewhere than the records of shop1. So a sample of the keys is looked for in the inputs: in topics from
outside, and in what is left of streams of other stages.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from grete.api.jobs.job import Job
from grete.api.serdes.serde import placing_of
from grete.errors import ConfigError
from grete.logs.partition_reader import rows_left
from grete.ports import JobLogReader, LogRow
from grete.protocol.envelope import MessageType, decode_header
from grete.protocol.frames import decode_columns
from grete.protocol.ids import TopicPartition
from grete.quoting import key_text
from grete.state.write.moving.entries import entries_of
from grete.state.write.moving.routes import BACKFILL, Route

SAMPLE = 1_000  # keys of a store: if one in a hundred is no record's key, the chance to meet none is 0.00004


def check_origin(log: JobLogReader, job: Job, routes: Sequence[Route]) -> None:
    """Raise ConfigError for a store of a stage with one partition with a key that no record of its inputs has."""
    topology = job.topology()
    for route in routes:
        if not route.moves or route.before > 1:
            continue
        stage = job.stage(route.stage)
        streams = [stream.topic for stream in topology.streams_into(stage.ordinal) if not stream.broadcast]
        inputs, declared = [*topology.keyed_externals_of(stage.ordinal), *streams], stage.inputs_by_log_topic(topology)
        places = {topic: placing_of(declared[topic].topic.key) for topic in inputs}
        for store, sample in _samples(log, route).items():
            if missing := _not_read(log, places, {*streams}, sample):
                kept = " A stream keeps what was processed for stream_retention_ms." if streams else ""
                raise ConfigError(
                    f"store {store}: no record that is still in {', '.join(inputs)} has the key "
                    f"{key_text(min(missing))}, so nothing shows that its keys are the records' keys, not even "
                    f"--assume-keyed: with one partition, all keys are where their records are, and later they would "
                    f"not be: {BACKFILL}.{kept}",
                    stage=route.stage,
                )


def _samples(log: JobLogReader, route: Route) -> dict[str, set[bytes]]:
    """Return "stage/store" → record keys, chosen by their hash, of a task's entries that must tell theirs."""
    found: dict[str, list[bytes]] = {}
    for store, key, _ in entries_of(log, route):
        if not route.tells(store, key):
            continue
        record_key = route.keys.of(store, key)
        assert record_key is not None
        keys = found.setdefault(f"{route.stage}/{route.stores[store]}", [])
        keys.append(record_key)
        if len(keys) > 2 * SAMPLE:
            keys[:] = _least(keys)
    return {store: {*_least(keys)} for store, keys in found.items()}


def _least(keys: Iterable[bytes]) -> list[bytes]:
    return sorted({*keys}, key=zlib.crc32)[:SAMPLE]


def _not_read(
    log: JobLogReader,
    topics: Mapping[str, Callable[[bytes], bytes] | None],
    streams: set[str],
    keys: set[bytes],
) -> set[bytes]:
    """Return the keys that no record has. Reads until all are found.

    ``topics``: each with the function that takes the part of a key that places it. ``streams``: those with frames.
    """
    left = keys.copy()
    for topic, placing in topics.items():
        for number in range(log.partitions(topic) or 0):
            at = TopicPartition(topic, number)
            for row in rows_left(log, at, *log.bounds(at)):
                found = _keys(row, at) if topic in streams else [row.key]
                left.difference_update(found if placing is None else [placing(key) for key in found if key])
                if not left:
                    return left
    return left


def _keys(row: LogRow, at: TopicPartition) -> Iterable[bytes | None]:
    """Return the keys of the records in a message of a stream: a marker has none."""
    message = row.value or b""
    return decode_columns(message, at, row.offset).keys if decode_header(message).type is MessageType.FRAME else ()
