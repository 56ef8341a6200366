"""A deterministic job's history in its log: input decisions, commits and the state at one of them, outputs by seq."""

from collections.abc import Sequence
from typing import NamedTuple

from grete.api.topics.reader import origin_of
from grete.core.changelog.changelog_fold import ChangelogFold
from grete.core.graph.task_topology import TaskWiring
from grete.errors import ConfigError
from grete.execution.deterministic.numbering import theirs_of
from grete.ports import LogReader, LogRow
from grete.protocol.changelog import InputDecision, decode_data
from grete.protocol.envelope import MessageType, decode_header
from grete.protocol.frames import decode_columns, decode_headers
from grete.protocol.ids import TopicPartition
from grete.protocol.notes import IdleNote
from grete.state.read.recorded_task import rows_of

NOT_COMPARED = {"grete.offset"}  # the offset of a dead letter in a stream: a replay cuts frames otherwise

State = dict[tuple[int, bytes], bytes]  # (store id, key) → value

MadeAt = tuple[TopicPartition, int | str]  # and the producer: by its id in a stream, outside by its name


class MadeOutput(NamedTuple):
    """One output: what was made, at which logical time, where it came from."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...]
    t: int


MadeOutputs = dict[MadeAt, dict[int, MadeOutput]]  # → seq → output


def state_at(log: LogReader, changelog: TopicPartition, checkpoint_id: int) -> State:
    """Return the state of a task as of its commit of ``checkpoint_id``."""
    state: State = {}
    fold = ChangelogFold(changelog, log.bounds(changelog)[0])
    for row in rows_of(log, changelog):
        closed = fold.feed(row.offset, row.value or b"")
        if closed is None:
            continue
        for message in closed.messages:
            stores, keys, values, reset_stores = decode_data(message)
            for store in reset_stores or ():
                state = {entry: value for entry, value in state.items() if entry[0] != store}
            for store, key, value in zip(stores, keys, values, strict=True):
                if value is None:
                    state.pop((store, key), None)
                else:
                    state[store, key] = value
        if closed.commit.checkpoint_id == checkpoint_id:
            break
    return state


def made_in_streams(log: LogReader, wiring: TaskWiring) -> MadeOutputs:
    """Return the records of deterministic tasks in the streams that a task reads: (partition, producer) → seq → record.

    Of an aligned task these are the channels of its ``logical`` producers.
    """
    channels = [channel for channel in wiring.channels if channel[0] in (wiring.logical or {channel[0]})]
    found: MadeOutputs = {channel[::-1]: {} for channel in channels}
    for partition in dict.fromkeys(partition for _, partition in channels):
        for row in rows_of(log, partition):
            value = row.value or b""
            header = decode_header(value)
            if header.type is not MessageType.FRAME:
                continue
            batch = decode_columns(value)
            assert batch.logical is not None
            records = found[partition, header.producer]
            rows = zip(batch.keys, batch.values, batch.timestamps, batch.logical[0], strict=True)
            for index, (key, cell, timestamp, t) in enumerate(rows):
                headers = None if batch.headers is None else batch.headers[index]
                ours = () if headers is None else tuple((name, text or b"") for name, text in decode_headers(headers))
                records.setdefault(header.seq + index, MadeOutput(key, cell, timestamp, ours, t))
    return found


def made_outside(log: LogReader, topic: str) -> MadeOutputs:
    """Return the records of deterministic tasks in an external topic: (partition, producer) → seq → record."""
    found: MadeOutputs = {}
    for number in range(log.partitions(topic) or 0):
        partition = TopicPartition(topic, number)
        for row in rows_of(log, partition):
            pairs = decode_headers(row.headers) if row.headers else ()
            origin = origin_of(pairs)
            if origin is None:
                continue  # another job's
            headers = tuple((name, text or b"") for name, text in theirs_of(pairs) if name not in NOT_COMPARED)
            made = MadeOutput(row.key, row.value, row.timestamp_ms, headers, origin.t)
            found.setdefault((partition, origin.producer), {}).setdefault(origin.seq, made)
    return found


def decided_rows(
    log: LogReader, partition: TopicPartition, decisions: Sequence[InputDecision | IdleNote]
) -> list[LogRow]:
    """Return the rows of an external input that were decided on. Raises ConfigError if they are not all there."""
    taken = [decision for decision in decisions if isinstance(decision, InputDecision)]
    ours = [d for d in taken if TopicPartition(d.topic, d.partition) == partition]
    if not ours:
        return []
    count = sum(decision.records for decision in ours)
    rows = [row for row in rows_of(log, partition) if row.offset >= ours[0].first_offset][:count]
    if len(rows) < count or rows[0].offset != ours[0].first_offset:
        raise ConfigError(
            f"{partition}: of the {count} records from offset {ours[0].first_offset} on, which were taken in, the "
            f"topic holds {len(rows)}: check a later stretch with --since, or keep the topic longer",
            partition=partition,
        )
    if rows[-1].offset - rows[0].offset + 1 != count:
        raise ConfigError(
            f"{partition} was written in transactions: its offsets have gaps, and a replay cannot place its "
            "records: let the producer of a job that is to be replayed write without transactions",
            partition=partition,
        )
    return rows
