"""How far a backfill goes: where each external input is cut between files, the log, and what the live job reads."""

from collections.abc import Mapping
from typing import NamedTuple

from framework.api.job import Job
from framework.core.task_topology import TaskWiring
from framework.errors import ConfigError
from framework.job.metadata import placed_from
from framework.ports import JobLogReader, LogReader
from framework.spark.backfill.plans import Tail
from framework.state.commits import all_wirings
from protocol.commit import Commit
from protocol.ids import TopicPartition

NOW = "now"
LOG = "kafka"  # where history may come from, beside files: the log's own history


class Until(NamedTuple):
    """The value of ``--until``: now, offsets by partition, or neither: the job's last commit, or the history's end."""

    now: bool
    offsets: Mapping[TopicPartition, int]


class Cover(NamedTuple):
    """By external partition: what is read from the log, and the offset that the live job goes on from."""

    tails: dict[TopicPartition, Tail]
    resume: dict[TopicPartition, int]
    remarks: list[str]  # what a person should know


Ends = Mapping[str, Mapping[int, int] | None]  # external topic from files → where they end; None: they have no offsets


def parse_until(text: str | None, job: Job) -> Until:
    """Return what ``now`` or ``[TOPIC:]PARTITION=OFFSET,…`` says. Raises ConfigError."""
    if text is None or text == NOW:
        return Until(text == NOW, {})
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
    return Until(now=False, offsets=offsets)


def cover(log: LogReader, tasks: list[tuple[TaskWiring, Commit | None]], ends: Ends, until: Until) -> Cover:
    """Decide where each external partition is cut; ``tasks``: with their last commits, after they were claimed.

    Raises ConfigError: a gap between files and log, an offset that is not there, or one that the job has passed.
    """
    found = Cover({}, {}, [])
    for wiring, last in tasks:
        positions = {TopicPartition(e.topic, e.partition): e.offset for e in (() if last is None else last.external)}
        for partition in wiring.external:
            start, end = log.bounds(partition)
            archived = partition.topic in ends and ends[partition.topic] is not None
            known = (ends.get(partition.topic) or {}).get(partition.partition, 0)
            begin = known if archived else start
            position = positions.get(partition) if last is not None and last.checkpoint_id > 0 else None
            resume = _resume(partition, until, position, begin, (start, end), from_files=partition.topic in ends)
            _check(partition, resume, begin, (start, end), position)
            if begin < resume:
                found.tails[partition] = Tail(begin, resume)
            if not archived and start > 0 and partition not in found.resume:
                found.remarks.append(
                    f"{partition} starts at offset {start:,}: the records before it are not in the log any more"
                )
            if position is not None and resume > position:
                found.remarks.append(
                    f"{partition}: the job had come to offset {position:,}; what it would have sent from there to "
                    f"{resume:,} is not sent"
                )
            if found.resume.setdefault(partition, resume) != resume:
                raise ConfigError(
                    f"{partition} is read by several stages, which are at different offsets: use --until",
                    partition=partition,
                )
    return found


def _resume(
    partition: TopicPartition,
    until: Until,
    position: int | None,
    begin: int,
    bounds: tuple[int, int],
    *,
    from_files: bool,
) -> int:
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


def check_placed(log: JobLogReader, job: Job, covered: Cover, ends: Ends) -> None:
    """Raise ConfigError for history from before a rescale: records are in the former partitions of their keys."""
    for partition, placed in placed_from(log, job).items():
        archived = ends.get(partition.topic) is not None
        tail = covered.tails.get(partition)
        if placed and (archived or (tail is not None and tail.begin < placed)):
            raise ConfigError(
                f"{partition}: up to offset {placed:,} records are in the partitions of their keys from before the "
                f"job was rescaled to {job.count_of(partition.topic)} partitions; their state would be made in the "
                "wrong tasks: run the whole history, as files without offsets, through a job of another name",
                partition=partition,
            )
