"""Builds the commit of each task of a bulk write: it follows the last commit, and covers all that its streams hold."""

from collections.abc import Iterator, Mapping

from grete.core.changelog.changelog_rewrite import ChangelogRewrite
from grete.core.deterministic.merge_channel import ALL
from grete.ports import Log
from grete.protocol.commit import (
    ChannelCommit,
    Commit,
    DeterministicCommit,
    ExternalInput,
    Frontier,
    InputCommit,
    OutputCommit,
    ProducerRollbacks,
)
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.state.write.bulk.bulk_write_attempt import AttemptData, BulkWrite
from grete.state.write.bulk.task_claim import ClaimedTask
from grete.stores.overlay.rewrite_slice import BEGUN


def commit_of(
    log: Log,
    bulk_write: BulkWrite,
    task: ClaimedTask,
    won: AttemptData,
    ends: Mapping[TopicPartition, int],
    settings: Settings,
    *,
    full: bool,
    external: Mapping[TopicPartition, int],
) -> Commit:
    """Return the commit of one task.

    All records in the streams are processed or rolled back, so its positions are their ends.
    """
    base, wiring = task.base, task.wiring
    by_producer = {other.wiring.producer: other for other in bulk_write.tasks}
    rewrite = _rewrite_of(bulk_write, task, settings)
    return Commit(
        producer=wiring.producer,
        generation=task.generation,
        checkpoint_id=bulk_write.checkpoint_id,
        previous=-1 if base is None else base.checkpoint_id,
        rollback_history=task.rollback_history,
        outputs=tuple(OutputCommit(p.topic, p.partition, _next_seq(task, p)) for p in wiring.outputs),
        data_count=won.count,
        data_digest=won.digest,
        attempt=won.attempt,
        cursor=b"" if full else rewrite.cursor or BEGUN,
        round_start=rewrite.round_start,
        base=rewrite.base,
        fingerprint=wiring.fingerprint,
        at_end=False,
        inputs=tuple(_inputs(bulk_write, task, by_producer, ends)),
        known=tuple(
            ProducerRollbacks(u, by_producer[u].rollback_history) for u in dict.fromkeys(u for u, _ in wiring.channels)
        ),
        external=tuple(ExternalInput(p.topic, p.partition, _position(log, task, p, external)) for p in wiring.external),
        bulk_write_id=bulk_write.bulk_write_id,
        nonce=task.nonce,
        round_started_ms=rewrite.started_ms,
        rounds=rewrite.rounds,
        deterministic=_logical(bulk_write, task),
    )


def _inputs(
    bulk_write: BulkWrite, task: ClaimedTask, by_producer: Mapping[int, ClaimedTask], ends: Mapping[TopicPartition, int]
) -> Iterator[InputCommit]:
    """Yield the position in each stream: its end, with all that the producers have sent included."""
    checkpoint_id, channels = bulk_write.checkpoint_id, task.wiring.channels
    for partition in dict.fromkeys(partition for _, partition in channels):
        end, producers = ends[partition], [by_producer[u] for u, read in channels if read == partition]
        yield InputCommit(
            partition.topic,
            partition.partition,
            end,
            tuple(
                ChannelCommit(
                    producer.wiring.producer,
                    producer.generation,
                    checkpoint_id,
                    _next_seq(producer, partition) - 1,
                    end,
                )
                for producer in producers
            ),
        )


def _rewrite_of(bulk_write: BulkWrite, task: ClaimedTask, settings: Settings) -> ChangelogRewrite:
    base = task.base
    if base is None:
        return ChangelogRewrite()
    rewrite = ChangelogRewrite(base.cursor, base.round_start, base.base, base.round_started_ms, base.rounds)
    if base.checkpoint_id > 0:
        rewrite.committed(task.base_offset, bulk_write.time_ms, base.cursor, settings.changelog_retention_ms)
    return rewrite


def _logical(bulk_write: BulkWrite, task: ClaimedTask) -> DeterministicCommit | None:
    """Return the logical time: all records of the bulk write are before its checkpoint, all live records after it.

    Of an aligned task only the frontiers of its deterministic producers (A2b), None if it has none.
    """
    wiring, time_us = task.wiring, bulk_write.checkpoint_id * 1_000
    merged = [channel for channel in wiring.channels if wiring.deterministic or channel[0] in wiring.logical]
    frontiers = tuple(Frontier(*partition, producer, time_us, ALL, 0) for producer, partition in merged)
    if not wiring.deterministic:
        return DeterministicCommit(0, 0, 0, frontiers) if frontiers else None
    known = task.base and task.base.deterministic
    return DeterministicCommit(0, time_us, max(time_us, task.lease, known.lease if known else 0), frontiers)


def _next_seq(task: ClaimedTask, partition: TopicPartition) -> int:
    outputs = () if task.base is None else task.base.outputs
    return next((o.next_seq for o in outputs if TopicPartition(o.topic, o.partition) == partition), 1)


def _position(log: Log, task: ClaimedTask, partition: TopicPartition, external: Mapping[TopicPartition, int]) -> int:
    if partition in external:
        return external[partition]
    known = () if task.base is None else task.base.external
    found = (e.offset for e in known if TopicPartition(e.topic, e.partition) == partition)
    return next(found, log.bounds(partition)[0])
