"""Takes one task out of a job's log: its state at a commit, what it has read and decided since, what it has sent.

It holds the log by its ``LogReader`` half, so it can change nothing, and the job may run meanwhile.
"""

import platform
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import distributions
from typing import NamedTuple

from msgspec.structs import asdict

from grete.api.jobs.job import Job
from grete.core.graph.task_topology import TaskWiring
from grete.errors import ConfigError, OffsetOutOfRange
from grete.logs.partition_reader import rows as rows_between
from grete.ports import JobLogReader, LogRow
from grete.protocol.ids import TopicPartition, split_producer_id
from grete.replay.incident.code import code_of, fingerprint_of
from grete.replay.incident.file import EndLine, Manifest, PackedCode, PackedRows, StateOf, digest_of, encode
from grete.replay.incident.hidden import Hider
from grete.replay.recorded import State, with_data
from grete.settings import Settings, without_password
from grete.state.read.checkpoints.commit_search import last_at_most
from grete.state.read.checkpoints.commits import CommittedAt, all_wirings, newest_commit
from grete.state.read.checkpoints.snapshots import segments, snapshot_at

OUTPUT_ROWS = 20_000  # of each partition that the task writes to: the last ones, to be compared
PINS = "guarantee", "graph", "definition"  # of the job's metadata: by them its code reads the state
_SECRET = ("password", "secret", "key", "token", "credential", "jaas", "sasl", "oauth", "pem")
ShowProgress = Callable[[str, int, int], None]  # what is read, how much of how much


class PackRequest(NamedTuple):
    """The content to pack. ``bytes_max``: of state and inputs together; ``error``: the line that ended the worker."""

    reference: str
    checkpoint_id: int | None
    bytes_max: int
    values: bool
    code: bool
    settings: Settings
    log: str
    options: dict[str, str]
    error: EndLine | None


def wiring_named(job: Job, task: str) -> TaskWiring:
    """Return the wiring of a task, by its name STAGE-PARTITION. Raises ConfigError."""
    wirings = {wiring.name: wiring for wiring in all_wirings(job)}
    if task not in wirings:
        raise ConfigError(f"job {job.name!r} has no task {task!r}: it has {', '.join(wirings)}")
    return wirings[task]


def pack(
    job: Job, log: JobLogReader, wiring: TaskWiring, wanted: PackRequest, progress: ShowProgress
) -> tuple[Manifest, dict[str, bytes]]:
    """Return the manifest and all parts of a task's incident.

    Raises ConfigError: nothing is committed, not this checkpoint, its inputs are gone, the state is too large.
    """
    settings = wanted.settings
    if settings.loses and (wiring.is_source or not settings.aligned):
        raise ConfigError(
            f"job {job.name!r} runs {settings.processing_guarantee}: task {wiring.name} processes what it has read "
            "after the commit that has its position, so a commit's state and what is read behind it do not go together",
            task=wiring.name,
            setting="processing_guarantee",
        )
    while True:
        newest = newest_commit(log, wiring)
        if newest is None:
            raise ConfigError(f"task {wiring.name} has committed nothing yet: there is no state to begin with")
        try:
            return _Packing(job, log, wiring, wanted, progress).pack(_asked(log, wiring, wanted, newest), newest)
        except (OffsetOutOfRange, ConfigError):
            later = newest_commit(log, wiring)
            if wanted.checkpoint_id is not None or later is None or later.offset == newest.offset:
                raise  # else the job has gone on, and what it had read was deleted meanwhile


def _asked(log: JobLogReader, wiring: TaskWiring, wanted: PackRequest, newest: CommittedAt) -> CommittedAt:
    if wanted.checkpoint_id is None:
        return newest
    found = last_at_most(log, wiring, wanted.checkpoint_id)
    if found is None or found.commit.checkpoint_id != wanted.checkpoint_id:
        near = "none" if found is None else str(found.commit.checkpoint_id)
        raise ConfigError(
            f"task {wiring.name} has not committed checkpoint {wanted.checkpoint_id}: the last one before it that is "
            f"retained is {near}, its newest {newest.commit.checkpoint_id}",
            task=wiring.name,
            checkpoint_id=wanted.checkpoint_id,
        )
    return found


class _Packing:
    """One look at the log."""

    def __init__(
        self, job: Job, log: JobLogReader, wiring: TaskWiring, wanted: PackRequest, progress: ShowProgress
    ) -> None:
        self._job, self._log, self._wiring, self._wanted, self._progress = job, log, wiring, wanted, progress
        self._hider = None if wanted.values else Hider()
        self._parts: dict[str, bytes] = {}
        self._left = wanted.bytes_max
        self._stage = job.stages[split_producer_id(wiring.producer)[0]]

    def pack(self, at: CommittedAt, newest: CommittedAt) -> tuple[Manifest, dict[str, bytes]]:
        """Return manifest and parts."""
        wanted, wiring, job, log = self._wanted, self._wiring, self._job, self._log
        state = self._state("state", at)
        assert state is not None
        places = self._places(at)
        comparable = newest.offset != at.offset and not wiring.channels and wanted.values
        after = self._state("state-after", newest) if comparable else None
        changelog = self._changelog(at)
        inputs = [self._input(number, *place) for number, place in enumerate(places)]
        outputs = [self._output(number, partition) for number, partition in enumerate(self._written())]
        code, fingerprint = self._code()
        metadata = log.read_metadata(job.name)
        pins = {name: raw.decode() for name in PINS if (raw := metadata.meta_get(name)) is not None}
        topics = {each.topic: log.partitions(each.topic) or 0 for each in (*inputs, *outputs)}
        manifest = Manifest(
            job=job.name,
            reference=wanted.reference,
            task=wiring.name,
            stage=self._stage.name,
            partition=wiring.changelog.partition,
            mode=self._stage.mode,
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            values=wanted.values,
            at=state,
            after=after,
            last_checkpoint_id=newest.commit.checkpoint_id,
            changelog=changelog,
            inputs=inputs,
            outputs=outputs,
            topics=topics,
            metadata=pins,
            settings=_shown(wanted.settings),
            log=wanted.log,
            options={name: _redacted(name, value) for name, value in wanted.options.items()},
            versions=_versions(),
            code=code,
            fingerprint=fingerprint,
            error=wanted.error if wanted.error is None or wanted.values else wanted.error.without_values(),
            digests={name: digest_of(data) for name, data in self._parts.items()},
        )
        return manifest, self._parts

    # --- state ---

    def _state(self, part: str, at: CommittedAt) -> StateOf | None:
        snapshot = snapshot_at(self._log, self._wiring, at)
        state: State = {}
        for segment in segments(self._log, snapshot):
            for message in segment.messages:
                state = with_data(state, message)
            self._progress(f"state at checkpoint {at.commit.checkpoint_id}", segment.offset - snapshot.begin, at.offset)
        names = {store_id: name for name, store_id in self._stage.store_ids().items()}
        sizes: dict[str, tuple[int, int]] = {}
        for (store, key), value in state.items():
            name = names.get(store, "(of Grete)")
            count, size = sizes.get(name, (0, 0))
            sizes[name] = count + 1, size + len(key) + len(value)
        total = sum(size for _, size in sizes.values())
        if total > self._left and part != "state":
            return None  # the state to compare with: the run goes without
        if total > self._left:
            raise ConfigError(
                f"the state of {self._wiring.name} at checkpoint {at.commit.checkpoint_id} has {total:,} bytes "
                f"({', '.join(f'{name}: {size:,}' for name, (_, size) in sorted(sizes.items()))}), and "
                f"{self._left:,} are left of --max-mib {self._wanted.bytes_max >> 20}: raise it; a file is read into "
                "memory as a whole",
                task=self._wiring.name,
            )
        self._left -= total
        entries = [(store, key, value) for (store, key), value in state.items()]
        self._parts[part] = encode(entries) if self._hider is None else self._hider.state(state)
        commit = self._log.read(self._wiring.changelog, at.offset, 0)[0].value or b""
        self._parts[f"{part}-commit"] = commit
        return StateOf(
            checkpoint_id=at.commit.checkpoint_id,
            offset=at.offset,
            append_time_ms=at.append_time_ms,
            part=part,
            commit=f"{part}-commit",
            stores=sizes,
        )

    def _changelog(self, at: CommittedAt) -> PackedRows:
        """Pack what follows the commit, as it was written; decisions are in there."""
        partition = self._wiring.changelog
        end = self._log.bounds(partition)[1]
        return self._rows("changelog", partition, at.offset + 1, end, self._left, stream=True)

    # --- inputs and outputs ---

    def _places(self, at: CommittedAt) -> list[tuple[TopicPartition, int, bool]]:
        """Return (partition, offset to read from, whether it is a stream). Raises ConfigError for what is gone."""
        commit, wiring = at.commit, self._wiring
        outside = {TopicPartition(each.topic, each.partition): each.offset for each in commit.external}
        places = [(TopicPartition(each.topic, each.partition), each.resume, True) for each in commit.inputs]
        for partition in wiring.external:
            first = max(self._log.bounds(partition)[0], wiring.starts.get(partition, 0))
            places.append((partition, outside.get(partition, first), False))
        for partition, offset, stream in places:
            start = self._log.bounds(partition)[0]
            if start > offset:
                way = (
                    "of a stream the log keeps what its reader has not committed: take the newest checkpoint, without "
                    "--at"
                    if stream
                    else "the retention of the topic was too short: take a later checkpoint, by --at"
                )
                raise ConfigError(
                    f"task {wiring.name} at checkpoint {commit.checkpoint_id} reads on at offset {offset} of "
                    f"{partition}, which begins at {start} now: {way}",
                    task=wiring.name,
                    partition=partition,
                    offset=offset,
                )
        return places

    def _input(self, number: int, partition: TopicPartition, offset: int, stream: bool) -> PackedRows:
        """Pack what follows a position; inputs that are left share what is left of the bound."""
        end = self._log.bounds(partition)[1]
        count = len(self._wiring.external) + len({each for _, each in self._wiring.channels})
        room = self._left // max(1, count - number)
        found = self._rows(f"input-{number}", partition, offset, end, room, stream=stream)
        self._left -= found.bytes
        return found

    def _written(self) -> dict[TopicPartition, bool]:
        """Return the partitions that the task may write to, and whether they are of streams."""
        names = {topic.name for topic in (*self._stage.topics_written(), *self._stage.dead_letters())}
        outside = [
            TopicPartition(topic, number)
            for topic in self._job.external_sinks()
            if topic in names
            for number in range(self._log.partitions(topic) or 0)
        ]
        return dict.fromkeys(self._wiring.outputs, True) | dict.fromkeys(outside, False)

    def _output(self, number: int, partition: TopicPartition) -> PackedRows:
        start, end = self._log.bounds(partition)
        begin = max(start, end - OUTPUT_ROWS)
        stream = self._written()[partition]
        return self._rows(f"output-{number}", partition, begin, end, self._wanted.bytes_max, stream=stream)

    def _rows(
        self, part: str, partition: TopicPartition, begin: int, end: int, bytes_max: int, *, stream: bool
    ) -> PackedRows:
        rows: list[LogRow] = []
        size, upto = 0, begin
        for row in rows_between(self._log, partition, begin, end):
            size_of = len(row.key or b"") + len(row.value or b"") + len(row.headers or b"")
            if size + size_of > bytes_max:
                break
            rows.append(row)
            size, upto = size + size_of, row.offset + 1
            if len(rows) % 1_000 == 0:
                self._progress(str(partition), upto - begin, end - begin)
        else:
            upto = end
        self._parts[part] = self._shown(rows, partition, stream=stream)
        return PackedRows(
            topic=partition.topic,
            partition=partition.partition,
            part=part,
            stream=stream,
            begin=begin,
            upto=upto,
            end=end,
            rows=len(rows),
            bytes=size,
        )

    def _shown(self, rows: Sequence[LogRow], partition: TopicPartition, *, stream: bool) -> bytes:
        if self._hider is None:
            return encode(rows)
        if not stream:
            return self._hider.rows(rows)
        return self._hider.messages(rows, stream=partition != self._wiring.changelog)

    # --- code and surroundings ---

    def _code(self) -> tuple[PackedCode | None, str]:
        reference, files = code_of(self._job, self._wanted.reference)
        fingerprint = fingerprint_of(files)
        if not self._wanted.code:
            return None, fingerprint
        parts = {name: f"code/{number}" for number, name in enumerate(sorted(files))}
        self._parts |= {part: files[name] for name, part in parts.items()}
        return PackedCode(reference=reference, files=parts), fingerprint


def _redacted(name: str, value: str) -> str:
    return "(left out)" if any(part in name.lower() for part in _SECRET) else value


def _versions() -> dict[str, str]:
    """Return the release of each library that is installed, of Python and of the system."""
    found = {each.metadata["Name"]: each.version for each in distributions() if each.metadata["Name"]}
    return {"python": platform.python_version(), "system": platform.platform()} | dict(sorted(found.items()))


def _shown(settings: Settings) -> dict[str, str | int | float]:
    """Return settings without passwords: the file goes to other people."""
    values = asdict(settings).items()
    return {name: without_password(value) if isinstance(value, str) else value for name, value in values}
