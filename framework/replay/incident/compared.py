"""Comparison of a task's outputs and state in an incident: as logged, and as made again."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from grete.api.jobs.graph import StageGraph
from grete.api.topics.reader import origin_of
from grete.execution.deterministic.numbering import theirs_of
from grete.execution.timing.reserved_stores import META, STREAM_TIME
from grete.ports import LogRow
from grete.protocol.envelope import MessageType, decode_header
from grete.protocol.frames import decode_columns, decode_headers
from grete.protocol.ids import TopicPartition
from grete.replay.recorded import State
from grete.state.read.live_entries import unexpired_of


class Sent(NamedTuple):
    """One output of the task. ``seq``: its number in the partition, -1: it has none; ``t``: likewise, in µs."""

    seq: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...]
    t: int


class Compared(NamedTuple):
    """The outputs to one partition. ``same`` of ``compared``; ``difference``: the first, as in the log and as now.

    ``numbered`` outputs are compared one by one; others are looked for in the log, where other tasks write, too.
    """

    partition: TopicPartition
    numbered: bool
    sent: list[Sent]
    compared: int
    same: int
    difference: tuple[Sent | None, Sent | None] | None


class EntryDifference(NamedTuple):
    """An entry of a store that came out otherwise; None: there is none."""

    store: str
    key: bytes
    before: bytes | None
    now: bytes | None


def in_stream(rows: Iterable[LogRow], producer: int, upto: int | None = None) -> list[Sent]:
    """Return the records of a task in a partition of a stream, without those that it has rolled back.

    ``upto``: only those of checkpoints up to this one.
    """
    found: dict[int, Sent] = {}
    generation = -1
    for row in rows:
        value = row.value or b""
        header = decode_header(value)
        if header.producer != producer or header.generation < generation:
            continue
        if header.generation > generation:  # a rollback: what follows replaces the records from its seq on
            generation = header.generation
            found = {seq: sent for seq, sent in found.items() if seq < header.seq}
        if header.type is not MessageType.FRAME or (upto is not None and header.checkpoint_id > upto):
            continue
        batch = decode_columns(value)
        for index, key in enumerate(batch.keys):
            cell = None if batch.headers is None else batch.headers[index]
            headers = () if cell is None else tuple(decode_headers(cell))
            t = -1 if batch.logical is None else batch.logical[0][index]
            seq = header.seq + index
            found[seq] = Sent(seq, key, batch.values[index], batch.timestamps[index], headers, t)
    return list(found.values())


def in_topic(rows: Iterable[LogRow], producer: str | None) -> list[Sent]:
    """Return the records in a partition of a topic outside: of this producer, by its name; None: of all."""
    found: dict[int, Sent] = {}
    for number, row in enumerate(rows):
        pairs = tuple(decode_headers(row.headers)) if row.headers else ()
        if producer is None:
            found[-number - 1] = Sent(-1, row.key, row.value, row.timestamp_ms, pairs, -1)
            continue
        origin = origin_of(pairs)
        if origin is not None and origin.producer == producer:
            sent = Sent(origin.seq, row.key, row.value, row.timestamp_ms, tuple(theirs_of(pairs)), origin.t)
            found.setdefault(origin.seq, sent)
    return list(found.values())


def compare(partition: TopicPartition, before: Sequence[Sent], now: Sequence[Sent], *, numbered: bool) -> Compared:
    """Compare the outputs to one partition."""
    if not numbered:
        left = Counter(each._replace(seq=-1) for each in before)
        same, first = 0, None
        for each in now:
            if left[each] > 0:
                left[each] -= 1
                same += 1
            elif first is None:
                first = None, each
        return Compared(partition, numbered, list(now), len(now), same, first)
    known = {each.seq: each for each in before}
    pairs = [(known[each.seq], each) for each in now if each.seq in known]
    differing = [pair for pair in pairs if pair[0] != pair[1]]
    return Compared(
        partition, numbered, list(now), len(pairs), len(pairs) - len(differing), next(iter(differing), None)
    )


def compare_state(graph: StageGraph, before: State, now: State) -> tuple[int, list[EntryDifference]]:
    """Return the number of entries that the declared stores have in one or both, and those that differ."""
    count, found = 0, []
    times = before.get((META, STREAM_TIME)), now.get((META, STREAM_TIME))
    ids = graph.store_ids()
    for store in graph.all_stores():
        number = ids[store.name]
        was, came = (
            dict(unexpired_of(store, _of_store(state, number), time))
            for state, time in zip((before, now), times, strict=True)
        )
        keys = was.keys() | came.keys()
        count += len(keys)
        found += [
            EntryDifference(store.name, key, was.get(key), came.get(key))
            for key in sorted(keys)
            if was.get(key) != came.get(key)
        ]
    return count, found


def _of_store(state: Mapping[tuple[int, bytes], bytes], number: int) -> list[tuple[bytes, bytes]]:
    return sorted((key, value) for (store, key), value in state.items() if store == number)
