"""A job over a prefix of its input in batch, live over the rest: what the tests compare with live over all."""

import zlib
from collections.abc import Iterator
from typing import NamedTuple

from grete.api.jobs.job import Job
from grete.core.deterministic.merge_channel import ALL
from grete.core.graph.task_topology import TaskWiring, wire
from grete.execution.timing.reserved_stores import EVENT_TIME
from grete.ports import LogRow
from grete.protocol.changelog import ChangelogHeader, ChangelogType, Claim, encode_claim, encode_data
from grete.protocol.commit import (
    ChannelCommit,
    Commit,
    DeterministicCommit,
    ExternalInput,
    Frontier,
    InputCommit,
    OutputCommit,
    ProducerRollbacks,
    encode_commit,
)
from grete.protocol.frames import decode_headers
from grete.protocol.ids import RollbackEntry, TopicPartition
from grete.settings import Settings
from grete.testing import Kit
from tests.support.local_batch import TaskResult, run_job

Headers = tuple[tuple[str, bytes | None], ...]
CHECKPOINT_ID = 1_600_000_000_000  # before the kit's time
ROLLBACKS = (RollbackEntry(1, 0),)


class Seen(NamedTuple):
    """All that a job has made of its input, as bytes; but for how far the inputs of a live task are (E1)."""

    state: dict[tuple[int, int], dict[int, dict[bytes, bytes | None]]]  # (stage, partition) → store id → key → value
    outputs: dict[TopicPartition, list[tuple[bytes | None, bytes | None, int, Headers]]]


def live(kit: Kit) -> Seen:
    """Run a fed job to its end; return what it made."""
    kit.run()
    state = {
        (kit.job.stage(stage).ordinal, partition): {
            store: {key: value for key, value in view.values.items() if not key.startswith(EVENT_TIME)}
            for store, view in hosted.disk.stores.items()
        }
        for (stage, partition), hosted in kit._tasks.items()
    }
    outputs = {
        (place := TopicPartition(topic, partition)): sorted(
            (
                (key, value, timestamp, _without_index(headers))
                for _, _, timestamp, key, value, headers in kit._data.partition(place).rows
            ),
            key=repr,  # when a window closes among other outputs depends on the moment
        )
        for topic in kit.job.external_sinks()
        for partition in range(kit.job.partitions)
    }
    return Seen(state, {place: rows for place, rows in outputs.items() if rows})


def _without_index(headers: bytes | None) -> Headers:
    """Return headers but for a letter's index in the batch that was read: where batches end is not guaranteed."""
    return () if headers is None else tuple(h for h in decode_headers(headers) if h[0] != "grete.index")


def taken_over(kit: Kit, cut: dict[TopicPartition, int], settings: Settings | None = None) -> Seen:
    """Run the first ``cut`` records of each input in batch, then the kit over the rest; return what both made."""

    def history(source: TopicPartition) -> Iterator[LogRow]:
        return (row for row in kit._data.partition(source).rows if row.offset < cut.get(source, 0))

    results = run_job(kit.job, history, settings, checkpoint_id=CHECKPOINT_ID)
    for (stage, partition), result in results.items():
        for message in commit_of(kit.job, stage, partition, result, cut):
            kit._data.append(
                TopicPartition(kit.job.topology().changelog(stage), partition), None, message, CHECKPOINT_ID, None
            )
    for result in results.values():
        for record in result.external:
            kit._data.append(record.partition, record.key, record.value, record.timestamp_ms, record.headers)
    return live(kit)


def commit_of(
    job: Job, stage: int, partition: int, result: TaskResult, covered: dict[TopicPartition, int]
) -> list[bytes]:
    """Return claim, data and commit by which a task that never ran starts from a result."""
    wiring, nonce = wire(job.topology(), stage, partition), bytes(16)
    messages = [encode_claim(ChangelogHeader(ChangelogType.CLAIM, 1, 0, 0), Claim(nonce, "batch", 1, 1))]
    stores, keys, values = zip(*result.state, strict=True)
    data = encode_data(ChangelogHeader(ChangelogType.DATA, 1, 1, 0), stores, keys, values)
    sources = {source for _, source in wiring.channels}
    commit = Commit(
        producer=wiring.producer,
        generation=1,
        checkpoint_id=CHECKPOINT_ID,
        previous=-1,
        rollback_history=ROLLBACKS,
        outputs=tuple(OutputCommit(p.topic, p.partition, 1) for p in wiring.outputs),
        data_count=1,
        data_digest=zlib.crc32(data),
        attempt=0,
        cursor=b"",
        round_start=0,
        base=0,
        fingerprint=wiring.fingerprint,
        at_end=False,
        inputs=tuple(
            InputCommit(
                source.topic,
                source.partition,
                0,
                tuple(ChannelCommit(p, 1, CHECKPOINT_ID, 0, 0) for p, read in wiring.channels if read == source),
            )
            for source in sorted(sources)
        ),
        known=tuple(ProducerRollbacks(p, ROLLBACKS) for p in sorted({p for p, _ in wiring.channels})),
        external=tuple(ExternalInput(p.topic, p.partition, covered.get(p, 0)) for p in wiring.external),
        nonce=nonce,
        deterministic=_logical(wiring) if wiring.deterministic else None,
    )
    return [*messages, data, encode_commit(ChangelogHeader(ChangelogType.COMMIT, 1, 2, 0), commit)]


def _logical(task: TaskWiring) -> DeterministicCommit:
    """Return the logical time of the commit of a batch: the history ends with its checkpoint."""
    end = CHECKPOINT_ID * 1_000
    return DeterministicCommit(0, end, end, tuple(Frontier(*read, p, end, ALL, 0) for p, read in task.channels))
