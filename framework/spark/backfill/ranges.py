"""The range of a backfill: each external input is divided between files, the log, and the live job."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from grete.api.jobs.job import Job
from grete.core.graph.task_topology import TaskWiring
from grete.errors import ConfigError
from grete.job.metadata import placed_from
from grete.logs.open_transactions import refuse_open, told_all
from grete.ports import JobLogReader, LogReader
from grete.protocol.commit import Commit
from grete.protocol.ids import TopicPartition
from grete.spark.backfill.plans import LogTail, TaskInput
from grete.state.read.checkpoints.commits import all_wirings

NOW = "now"


class BackfillEnd(NamedTuple):
    """The value of ``--until``: now, offsets by partition, or neither: the job's last commit, or the history's end."""

    now: bool
    offsets: Mapping[TopicPartition, int]


class InputRanges(NamedTuple):
    """The range of external inputs that each task reads, and the offset where the live job starts, by partition.

    ``begins``, ``ends``: the records of the log that belong to the job, whether they are read from it or from an
    archive. Tasks may be at different offsets of a partition only in an audit; then ``resume`` has the highest.
    """

    tails: dict[TaskInput, LogTail]
    begins: dict[TaskInput, int]
    ends: dict[TaskInput, int]
    resume: dict[TopicPartition, int]
    remarks: list[str]  # what a person should know


Ends = Mapping[str, Mapping[int, int] | None]  # external topic from files → where they end; None: they have no offsets


def parse_until(text: str | None, job: Job) -> BackfillEnd:
    """Return the ends that ``now`` or ``[TOPIC:]PARTITION=OFFSET,…`` names. Raises ConfigError."""
    if text is None or text == NOW:
        return BackfillEnd(text == NOW, {})
    known = [partition for wiring in all_wirings(job) for partition in wiring.external]
    topics = sorted({partition.topic for partition in known})
    offsets = {}
    for part in text.split(","):
        place, equals, offset = part.partition("=")
        topic, _, number = place.rpartition(":")
        if not equals or not number.isdecimal() or not offset.isdecimal() or (not topic and len(topics) > 1):
            raise ConfigError(f"--until {text}: write now, or [TOPIC:]PARTITION=OFFSET,…; topics: {', '.join(topics)}")
        partition = TopicPartition(topic or topics[0], int(number))
        if partition not in known:
            raise ConfigError(f"--until {text}: {partition} is no input of job {job.name!r}", partition=partition)
        offsets[partition] = int(offset)
    missing = [str(partition) for partition in known if partition not in offsets]
    if missing:
        raise ConfigError(f"--until {text}: says nothing of {', '.join(missing[:5])}: name every partition")
    return BackfillEnd(now=False, offsets=offsets)


def cover(
    log: LogReader, tasks: Sequence[tuple[TaskWiring, Commit | None]], ends: Ends, until: BackfillEnd | None = None
) -> InputRanges:
    """Decide where each external partition is cut; ``tasks``: with their last commits, after they were claimed.

    ``until`` None: each task at its own commit, for an audit. Raises ConfigError: a gap between files and log, an
    offset that is not there, or one that the job has passed.
    """
    found = InputRanges({}, {}, {}, {}, [])
    for wiring, last in tasks:
        positions = {TopicPartition(e.topic, e.partition): e.offset for e in (() if last is None else last.external)}
        for partition in wiring.external:
            reader = wiring.producer, partition
            start, end = log.bounds(partition)
            first = wiring.starts.get(partition, 0)
            archived = partition.topic in ends and ends[partition.topic] is not None
            known = (ends.get(partition.topic) or {}).get(partition.partition, 0)
            begin = max(first, known if archived else start)
            committed = last is not None and (until is None or last.checkpoint_id > 0)
            position = positions.get(partition) if committed else None
            resume = _resume(partition, until, position, begin, (start, end), from_files=partition.topic in ends)
            if resume > end:
                refuse_open(log, [partition], f"the job would go on from offset {resume:,}, behind what can be read")
            _check(partition, resume, begin, (start, end), position)
            found.begins[reader], found.ends[reader] = first, resume
            if begin < resume:
                found.tails[reader] = LogTail(begin, resume)
            if not archived and start > first and partition not in found.resume:
                found.remarks.append(
                    f"{partition} starts at offset {start:,}: the records before it are not in the log any more"
                )
            if first and partition not in found.resume:
                found.remarks.append(f"{partition}: the job begins at offset {first:,} (start=)")
            if position is not None and resume > position:
                found.remarks.append(
                    f"{partition}: the job had come to offset {position:,}; what it would have sent from there to "
                    f"{resume:,} is not sent"
                )
            if found.resume.setdefault(partition, resume) != resume:
                if until is not None:
                    raise ConfigError(
                        f"{partition} is read by several tasks, which are at different offsets: use --until",
                        partition=partition,
                    )
                found.resume[partition] = max(resume, found.resume[partition])
    if until is not None:
        found.remarks.extend(told_all(log, found.resume))
    return found


def _resume(
    partition: TopicPartition,
    until: BackfillEnd | None,
    position: int | None,
    begin: int,
    bounds: tuple[int, int],
    *,
    from_files: bool,
) -> int:
    if until is None:
        return begin if position is None else position
    if until.now:
        return bounds[1]
    if partition in until.offsets:
        return until.offsets[partition]
    if position is not None:
        return position
    return begin if from_files else bounds[1]


def _check(partition: TopicPartition, resume: int, begin: int, bounds: tuple[int, int], position: int | None) -> None:
    start, end = bounds
    if not start <= resume <= end:
        raise ConfigError(
            f"{partition}: the job would go on from offset {resume:,}, but the log has {start:,} to {end:,}: records "
            "in neither would be missing; add newer files, or choose another --until",
            partition=partition,
        )
    if begin < resume and begin < start:
        raise ConfigError(
            f"{partition}: the files end at offset {begin:,}, and the log starts at {start:,}: records in neither "
            "would be missing; add the files in between",
            partition=partition,
        )
    if position is not None and resume < position:
        raise ConfigError(
            f"{partition}: the job has committed up to offset {position:,}, beyond {resume:,}: it would send its "
            "outputs from there on twice; leave --until out, or use --until now",
            partition=partition,
        )


def check_placed(log: JobLogReader, job: Job, covered: InputRanges, ends: Ends) -> None:
    """Raise ConfigError for history from before a rescale: records are in the former partitions of their keys."""
    for partition, placed in placed_from(log, job).items():
        archived = ends.get(partition.topic) is not None
        before = any(tail.begin < placed for (_, each), tail in covered.tails.items() if each == partition)
        if placed and (archived or before):
            raise ConfigError(
                f"{partition}: up to offset {placed:,} records are in the partitions of their keys from before the "
                f"job was rescaled to {job.count_of(partition.topic)} partitions; their state would be made in the "
                "wrong tasks: run the whole history, as files without offsets, through a job of another name",
                partition=partition,
            )
