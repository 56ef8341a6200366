"""Whether a store's keys are those of the records, where one partition had all of them and so no key could tell.

``--assume-keyed`` says that the caller knows. With one partition a wrong answer would split state in silence: keys like
"shop1/tea" go elsewhere than the records of shop1. So a sample of the keys is looked for in the inputs.
"""

import zlib
from collections.abc import Iterable, Sequence

from grete.api.job import Job
from grete.errors import ConfigError
from grete.logs.partition_reader import rows_left
from grete.ports import JobLogReader
from grete.protocol.ids import TopicPartition
from grete.state.entries import entries_of
from grete.state.routes import BACKFILL, Route

SAMPLE = 1_000  # keys of a store: if one in a hundred is no record's key, the chance to meet none is 0.00004


def check_origin(log: JobLogReader, job: Job, routes: Sequence[Route]) -> tuple[str, ...]:
    """Raise ConfigError for a store of a stage with one partition with a key that no record of its inputs has.

    Return the stores, with keys, of such stages that read streams alone: their records are trimmed, so nothing tells.
    """
    topology, unchecked = job.topology(), list[str]()
    for route in routes:
        if not route.moves or route.before > 1:
            continue
        stage = job.stage(route.stage)
        inputs = topology.keyed_externals_of(stage.ordinal)
        for store, sample in _samples(log, route).items():
            if not inputs:
                unchecked.append(store)
            elif missing := _not_read(log, inputs, sample):
                raise ConfigError(
                    f"store {store}: no record that is still in {', '.join(inputs)} has the key {min(missing)!r}, so "
                    "nothing shows that its keys are the records' keys, not even --assume-keyed: with one partition, "
                    f"all keys are where their records are, and later they would not be: {BACKFILL}",
                    stage=route.stage,
                )
    return tuple(unchecked)


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


def _not_read(log: JobLogReader, topics: Iterable[str], keys: set[bytes]) -> set[bytes]:
    """Return which of these keys no record has. Reads until all are found."""
    left = keys.copy()
    for topic in topics:
        for number in range(log.partitions(topic) or 0):
            at = TopicPartition(topic, number)
            for row in rows_left(log, at, *log.bounds(at)):
                left.discard(row.key or b"")
                if not left:
                    return left
    return left
