"""A deterministic job's history in its log: input decisions, commits and the state at one of them, outputs by seq."""

from collections.abc import Iterable, Sequence
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
    """One output. ``seq``: its number in the partition; ``t``: its logical time in µs. -1: it has none."""

    seq: int
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
            state = with_data(state, message)
        if closed.commit.checkpoint_id == checkpoint_id:
            break
    return state


def with_data(state: State, message: bytes) -> State:
    """Return a state behind a data message. It is the same object, unless the message resets a store."""
    stores, keys, values, reset_stores = decode_data(message)
    for store in reset_stores or ():
        state = {entry: value for entry, value in state.items() if entry[0] != store}
    for store, key, value in zip(stores, keys, values, strict=True):
        if value is None:
            state.pop((store, key), None)
        else:
            state[store, key] = value
    return state


def in_stream(rows: Iterable[LogRow], *, rolls_back: bool, upto: int | None = None) -> dict[int, dict[int, MadeOutput]]:
    """Return the records in a partition of a stream: producer → seq → record.

    ``rolls_back``: aligned producers, whose next generation replaces the records from its first seq on. ``upto``: only
    those of checkpoints up to this one.
    """
    found: dict[int, dict[int, MadeOutput]] = {}
    generations: dict[int, int] = {}
    for row in rows:
        value = row.value or b""
        header = decode_header(value)
        generation = generations.setdefault(header.producer, header.generation)
        if rolls_back and header.generation < generation:
            continue
        records = found.setdefault(header.producer, {})
        if rolls_back and header.generation > generation:
            generations[header.producer] = header.generation
            found[header.producer] = records = {seq: made for seq, made in records.items() if seq < header.seq}
        if header.type is not MessageType.FRAME or (upto is not None and header.checkpoint_id > upto):
            continue
        batch = decode_columns(value)
        for index, key in enumerate(batch.keys):
            cell = None if batch.headers is None else batch.headers[index]
            headers = () if cell is None else tuple(decode_headers(cell))
            t = -1 if batch.logical is None else batch.logical[0][index]
            seq = header.seq + index
            made = MadeOutput(seq, key, batch.values[index], batch.timestamps[index], headers, t)
            records.setdefault(seq, made)
    return found


def in_topic(rows: Iterable[LogRow]) -> dict[str, dict[int, MadeOutput]]:
    """Return the records of deterministic tasks in a partition outside: producer, by its name → seq → record."""
    found: dict[str, dict[int, MadeOutput]] = {}
    for row in rows:
        made = unnumbered(row)
        origin = origin_of(made.headers)
        if origin is not None:
            made = made._replace(seq=origin.seq, headers=tuple(theirs_of(made.headers)), t=origin.t)
            found.setdefault(origin.producer, {}).setdefault(origin.seq, made)
    return found


def unnumbered(row: LogRow) -> MadeOutput:
    """Return a record outside as it is there, without a number: any producer may have written it."""
    headers = tuple(decode_headers(row.headers)) if row.headers else ()
    return MadeOutput(-1, row.key, row.value, row.timestamp_ms, headers, -1)


def made_in_streams(log: LogReader, wiring: TaskWiring) -> MadeOutputs:
    """Return the records of deterministic tasks in the streams that a task reads.

    Of an aligned task these are the channels of its ``logical`` producers.
    """
    channels = [channel for channel in wiring.channels if channel[0] in (wiring.logical or {channel[0]})]
    found: MadeOutputs = {}
    for partition in dict.fromkeys(partition for _, partition in channels):
        made = in_stream(rows_of(log, partition), rolls_back=False)
        found |= {(at, producer): _comparable(made.get(producer, {})) for producer, at in channels if at == partition}
    return found


def made_outside(log: LogReader, topic: str) -> MadeOutputs:
    """Return the records of deterministic tasks in a topic outside."""
    found: MadeOutputs = {}
    for number in range(log.partitions(topic) or 0):
        partition = TopicPartition(topic, number)
        made = in_topic(rows_of(log, partition))
        found |= {(partition, producer): _comparable(records) for producer, records in made.items()}
    return found


def _comparable(records: dict[int, MadeOutput]) -> dict[int, MadeOutput]:
    return {
        seq: made._replace(
            headers=tuple((name, text or b"") for name, text in made.headers if name not in NOT_COMPARED)
        )
        for seq, made in records.items()
    }


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
