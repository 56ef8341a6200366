"""Checks of a history in files: a backfill or an audit refuses these problems unless an option accepts them.

A log says itself which records there are. Files do not: what is missing or twice in them, or has a wrong time, would
make a wrong state.
"""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec

from grete.api.jobs.job import Job
from grete.clock_text import clock_text
from grete.core.graph.task_topology import TaskWiring
from grete.errors import ConfigError
from grete.execution.task_code.record_times import order_of
from grete.logs.partition_reader import rows
from grete.ports import LogReader
from grete.protocol.commit import Commit
from grete.protocol.ids import TopicPartition
from grete.spark.backfill.account.file_rows import EXAMPLES_MAX, FileRows, OffsetHole, by_partition
from grete.spark.backfill.account.seams import Seams, check_keys
from grete.spark.backfill.history import TopicHistory
from grete.spark.backfill.plans import BackfilledTask
from grete.spark.backfill.ranges import Ends, InputRanges
from grete.spark.backfill.sources import LOG
from grete.state.pins.start_pinning import SettledStarts

SECONDS = (1_000_000_000, 4_200_000_000)  # of the years 2001 to 2103; as ms they are days of 1970
DAY_MS = 24 * 3_600_000  # clocks of producers may be ahead, by no more than that
MICROSECONDS_MIN = 100_000_000_000_000  # of 1973; as ms they are beyond the year 5000


class Accept(StrEnum):
    """Problems in the history that ``--accept`` allows, for a backfill or an audit."""

    OVERLAP = "overlap"  # files without offsets reach past the first record that is read from the log
    HOLES = "holes"  # offsets are in no file of an archive
    TIMES = "times"  # timestamps look like seconds or microseconds, or are in the future
    KEYS = "keys"  # keys of the log have other bytes in the files, or another partition
    FEWER = "fewer"  # the history holds fewer records than the one that made the state before


class Accepted(NamedTuple):
    """Accepted problems; none by default. ``refused``: the greatest number of such records."""

    refused: int = 0
    kinds: frozenset[Accept] = frozenset()


def accepted_of(refused: int, kinds: Collection[str]) -> Accepted:
    """Return the limits of --max-refused and --accept. Raises ConfigError for another word."""
    if wrong := sorted(set(kinds) - set(Accept)):
        raise ConfigError(f"--accept {wrong[0]}: write one of {', '.join(Accept)}")
    return Accepted(refused, frozenset(map(Accept, kinds)))


def check_reports(
    log: LogReader, job: Job, reports: Sequence[BackfilledTask], ends: Ends, seams: Seams, accepted: Accepted
) -> None:
    """Raise ConfigError for what is wrong with the files that tasks have read, and ``accepted`` does not have."""
    found = by_partition(taken_of(reports))
    if found:
        _check_refused(found.values(), sum(report.letters + report.failed for report in reports), accepted)
    if Accept.TIMES not in accepted.kinds:
        _check_times(found.values(), by_time=any(stage.goes_by_time for stage in job.live))
    if Accept.HOLES not in accepted.kinds:
        _check_holes(log, found.values())
    if Accept.OVERLAP not in accepted.kinds:
        _check_overlap(job, found.values(), seams)
    if Accept.KEYS not in accepted.kinds:
        check_keys(job, ends, seams, known_of(found.values()))


def taken_of(reports: Iterable[BackfilledTask]) -> list[FileRows]:
    """Return the input that the tasks have taken from files."""
    return [taken for report in reports for taken in report.taken]


def known_of(taken: Iterable[FileRows]) -> dict[str, set[bytes]]:
    """Return topic → the keys that were sought in its files, and found."""
    found: dict[str, set[bytes]] = {}
    for each in taken:
        found.setdefault(each.topic, set()).update(each.known)
    return found


def _check_refused(taken: Iterable[FileRows], refused: int, accepted: Accepted) -> None:
    if refused <= accepted.refused:
        return
    examples = [text for each in taken for text in each.refused][:EXAMPLES_MAX]
    shown = f" The first: {'; '.join(examples)}." if examples else ""
    raise ConfigError(
        f"{refused:,} records of the history go to no store: they are dead letters, or dropped.{shown} If that is "
        f"meant: --max-refused {refused}"
    )


def _check_times(taken: Iterable[FileRows], *, by_time: bool) -> None:
    """Raise ConfigError if numbers that are taken for ms since 1970 look as if they counted something else.

    ``by_time``: event time counts in the job, and would be in the future with a record from there.
    """
    tomorrow_ms = int(time.time() * 1_000) + DAY_MS
    for each in taken:
        if each.reached_ms is None:
            continue
        looks = "and it looks like {}. Write the column as a timestamp, or in ms"
        if SECONDS[0] <= each.reached_ms < SECONDS[1]:
            date, looks = clock_text(each.reached_ms, utc=True), looks.format("seconds")
        elif each.reached_ms >= MICROSECONDS_MIN:
            date, looks = "beyond the year 5000", looks.format("microseconds or nanoseconds")
        elif by_time and each.reached_ms >= tomorrow_ms:
            date = clock_text(each.reached_ms, utc=True)
            looks = "in the future: event time would be there, and all that comes live before would be late. Correct it"
        else:
            continue
        raise ConfigError(
            f"{each.source}: the highest timestamp of the files is {each.reached_ms}. As ms since 1970 it is {date}, "
            f"{looks}; if it is meant: --accept times",
            partition=each.source,
        )


def _check_holes(log: LogReader, taken: Iterable[FileRows]) -> None:
    for each in taken:
        start, end = log.bounds(each.source)
        found = [hole for hole in each.holes if not _is_empty(log, each.source, hole, (start, end))]
        if found:
            shown = ", ".join(f"{hole.begin:,} to {hole.end - 1:,}" for hole in found[:EXAMPLES_MAX])
            more = ", …" if len(found) > EXAMPLES_MAX else ""
            raise ConfigError(
                f"{each.source}: {sum(hole.end - hole.begin for hole in found):,} offsets are in no file: {shown}"
                f"{more}. The log has {start:,} to {end:,}. Add the files that are missing; if no record is missing "
                "(marks of transactions, a compacted topic, an archive that began later): --accept holes",
                partition=each.source,
            )


def _is_empty(log: LogReader, partition: TopicPartition, hole: OffsetHole, bounds: tuple[int, int]) -> bool:
    """Tell whether the log, which still has these offsets, has no record there: marks of transactions take some."""
    start, end = bounds
    return start <= hole.begin and hole.end <= end and not any(True for _ in rows(log, partition, hole.begin, hole.end))


def _check_overlap(job: Job, taken: Iterable[FileRows], seams: Seams) -> None:
    """Raise ConfigError if files without offsets reach past the first record that the log adds to them."""
    times = {each.topic.name: order_of(each) for stage in job.stages for each in stage.inputs.values()}
    for each in taken:
        if each.next_offset is not None or each.reached_ms is None:
            continue
        if each.source not in seams or (first := seams[each.source].first) is None:
            continue
        told = times.get(each.topic)
        at = first.timestamp_ms if told is None else told(first.value, first.timestamp_ms)
        if at <= each.reached_ms:
            raise ConfigError(
                f"{each.source}: the files reach to {each.reached_ms} ms, and the log begins at offset "
                f"{first.offset:,} with {at} ms: what is in both would count twice. End the files before {at}, or give "
                "them the columns partition and offset; if nothing is in both: --accept overlap",
                partition=each.source,
            )


class HistoryCounts(msgspec.Struct, frozen=True):
    """The number of records in the history of each partition of a job: rows of files, and offsets of the log.

    ``resume``: where the job goes on in those whose files have no offsets; what it takes from there on is history, too.
    """

    job: str
    records: dict[str, int]
    resume: dict[str, int] = {}


def covered_by(job: Job, taken: Iterable[FileRows], cover: InputRanges, ends: Ends) -> HistoryCounts:
    """Return the number of records of a history."""
    found: Counter[TopicPartition] = Counter({source: each.records for source, each in by_partition(taken).items()})
    found.update({partition: tail.end - tail.begin for (_, partition), tail in cover.tails.items()})
    plain = {each: offset for each, offset in cover.resume.items() if ends.get(each.topic, {}) is None}
    counts, resume = ({str(place): number for place, number in sorted(each.items())} for each in (found, plain))
    return HistoryCounts(job.name, counts, resume)


def read_covered(path: Path) -> HistoryCounts | None:
    """Return the remains of the last backfill, None if there are none. Raises ConfigError: the file is damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=HistoryCounts)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"{path} is damaged ({error}): delete it if this backfill may replace the last one"
        ) from error


def write_covered(path: Path, covered: HistoryCounts) -> None:
    """Leave it for the next backfill."""
    scratch = path.with_suffix(".new")
    scratch.write_bytes(msgspec.json.encode(covered))
    scratch.replace(path)


def check_fewer(before: HistoryCounts | None, now: HistoryCounts, accepted: Accepted) -> None:
    """Raise ConfigError if a partition's history is shorter than what the state was made of that it replaces."""
    if before is None or before.job != now.job or Accept.FEWER in accepted.kinds:
        return
    for place in sorted({*before.records, *before.resume}):
        since = now.resume[place] - before.resume[place] if place in now.resume and place in before.resume else 0
        count = before.records.get(place, 0) + max(0, since)
        if (found := now.records.get(place, 0)) < count:
            live = f", and the job has taken {since:,} from the log since" if since > 0 else ""
            raise ConfigError(
                f"{place}: this history has {found:,} records, and that of the last backfill had "
                f"{before.records.get(place, 0):,}{live}: the state would lose the others. Add the files that are "
                "missing, or an archive of what the log has deleted since; if that is meant: --accept fewer"
            )


def check_log_whole(
    log: LogReader, tasks: Iterable[tuple[TaskWiring, Commit | None]], from_files: Collection[str], accepted: Accepted
) -> None:
    """Raise ConfigError if the log has lost records of which the state that a backfill replaces is made.

    ``tasks``: with their last commits. ``from_files``: the topics whose history does not come from the log.
    """
    for wiring, base in () if Accept.FEWER in accepted.kinds else tasks:
        for at in () if base is None else base.external:
            partition = TopicPartition(at.topic, at.partition)
            first, start = wiring.starts.get(partition, 0), log.bounds(partition)[0]
            if partition.topic not in from_files and first < start and first < at.offset:
                raise ConfigError(
                    f"{partition}: the job has taken records up to offset {at.offset:,}, and the log begins at "
                    f"offset {start:,}: a state made of what it still has would lose those before. Give an archive of "
                    f"the topic, --from {partition.topic}=PATH; if the job never had them: --accept fewer",
                    partition=partition,
                )


def check_starts(job: Job, settled: SettledStarts, histories: Mapping[str, TopicHistory]) -> None:
    """Refuse files that come before the topic where the job begins behind what it held. Raises ConfigError."""
    for stage, topic in sorted(settled.latest):
        if topic in histories and histories[topic].ends is None:
            raise ConfigError(
                f'stage {job.stages[stage].name} begins to read topic {topic} behind its last record (start="latest"), '
                f"and files without offsets come before its first: none of them would count. Write --from {topic}="
                f"{LOG}; or begin at a time, in a job of another name",
                topic=topic,
                stage=job.stages[stage].name,
            )
