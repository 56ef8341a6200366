"""Runs the task of an incident again, in memory: from its commit, over its inputs, with its decisions and call results.

The same driver, core and code run as in a worker. Other tasks do not: what they have sent is in the file.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from grete.api.jobs.job import Job
from grete.api.jobs.versions import FIRST
from grete.batch.no_calls import NoCalls
from grete.errors import ConfigError, FrameworkError
from grete.execution.job_task import JobTask
from grete.execution.sinks.sink_targets import no_sinks
from grete.execution.task_code.ports import Runner
from grete.job.topics import create_topics
from grete.ports import LogRow, MetadataReader
from grete.protocol.changelog import InputDecision
from grete.protocol.commit import Commit, decode_commit
from grete.protocol.envelope import Header, MessageType, encode_header
from grete.protocol.ids import TopicPartition
from grete.protocol.notes import IdleNote
from grete.replay.history import HostedTask, MemoryHistory, UntrimmedLog
from grete.replay.incident.compared import ComparedOutputs, EntryDifference, compare, compare_state
from grete.replay.incident.file import IncidentFile, PackedRows, StateOf
from grete.replay.recorded import MadeOutput, State, in_stream, in_topic, unnumbered
from grete.settings import Settings
from grete.state.pins.graph_pinning import know_graph
from grete.state.pins.pinning import check_readable
from grete.state.read.recorded_task import RecordedTask, recorded_task

STEPS_MAX = 1_000_000  # of virtual time
STEP_MS = 5  # of virtual time, while nothing is to do


@dataclass
class TaskRun:
    """The result of a task's run. ``error``: it ended the task; None: all records in the file were processed.

    ``read``: the offset that each input was read up to; ``uncommitted``: outputs since the last commit, which an error
    takes back; ``states``: entries compared at the later checkpoint, None: there is none to compare.
    """

    error: Exception | None = None
    read: dict[TopicPartition, int] = field(default_factory=dict)
    checkpoints: int = 0
    outputs: list[ComparedOutputs] = field(default_factory=list)
    uncommitted: list[tuple[TopicPartition, MadeOutput]] = field(default_factory=list)
    states: int | None = None
    differences: list[EntryDifference] = field(default_factory=list)


def _not_in_file(call: str) -> ConfigError:
    return ConfigError(
        f"the task calls {call}, and the incident holds no result of this call: run with --calls to let it be made "
        "from here"
    )


class _Pins:
    """The metadata in an incident."""

    def __init__(self, pins: dict[str, str]) -> None:
        self._pins = pins

    def meta_get(self, key: str) -> bytes | None:
        """Return the metadata under ``key`` or None."""
        return self._pins[key].encode() if key in self._pins else None

    def meta_items(self, prefix: str) -> list[tuple[str, bytes]]:
        """Return all (key, metadata) whose key starts with ``prefix``."""
        return [(key, text.encode()) for key, text in sorted(self._pins.items()) if key.startswith(prefix)]


class _IncidentLog(UntrimmedLog):
    pins: dict[str, str]

    def read_metadata(self, job: str) -> MetadataReader:
        """Return the pins of the job."""
        return _Pins(self.pins)


def check_runnable(file: IncidentFile) -> None:
    """Raise ConfigError for an incident without values: a task needs them."""
    if not file.manifest.values:
        raise ConfigError(
            f"{file.path} was made with --no-values: it holds lengths and digests of keys and values, and a task "
            "cannot run on them. `grete incident show` tells what is in it; to run it, make one without --no-values"
        )


class IncidentRun:
    """One run. The code of ``job`` may be newer than that of the incident, for a mistake that was mended."""

    def __init__(self, file: IncidentFile, job: Job, *, calls: bool = False) -> None:
        """``calls``: make those without a recorded result. Raises ConfigError: not this job, or not its stages."""
        check_runnable(file)
        self.file, self._said, self._makes_calls = file, file.manifest, calls
        if job.name != self._said.job:
            raise ConfigError(f"the incident is of job {self._said.job!r}, and this code defines {job.name!r}")
        self._task = JobTask(job.stage(self._said.stage), job.topology(), self._said.partition)
        self._history = MemoryHistory(self._said.at.append_time_ms + 1, UntrimmedLog)
        self._create_topics(job)
        self.wiring = self._task.wiring
        self._commit = decode_commit(file.part(self._said.at.commit))
        self._rows = {each.at: file.rows(each) for each in self._said.inputs}
        self._refused: NoCalls | None = None
        self._recorded = self._read_changelog()
        self._decided_t = 1 << 63  # up to which logical time the outputs in the log are of inputs in the file
        if self.wiring.deterministic and not self.wiring.channels:  # behind it, when an input is idle is decided again
            self._decided_t = max((each.last_t for each in self._recorded.decisions), default=0)

    def _create_topics(self, job: Job) -> None:
        log = _IncidentLog(self._history.data)
        log.pins = self._said.metadata
        outside = {each.topic for each in (*self._said.inputs, *self._said.outputs) if not each.stream}
        for topic, count in self._said.topics.items():
            if topic in outside:
                log.create_topic(topic, count, plain=True)
        create_topics(job, log, fed=None)
        if "definition" in self._said.metadata:
            check_readable(job, log)
        know_graph(job, log)
        if "definition" not in self._said.metadata:
            job.write_by(FIRST)  # of a release that pinned none

    def _read_changelog(self) -> RecordedTask:
        """Return the decisions of the task after the commit, as far as the inputs in the file go."""
        history, changelog, at = MemoryHistory(0, UntrimmedLog), self.wiring.changelog, self._said.at
        history.log.create_topic(changelog.topic, changelog.partition + 1)
        commit = LogRow(at.offset, at.append_time_ms, at.append_time_ms, None, self.file.part(at.commit), None)
        history.put(changelog, at.offset, [commit, *self.file.rows(self._said.changelog)])
        return recorded_task(history.log, changelog)

    # --- the run ---

    def run(self) -> TaskRun:
        """Run the task over all that is in the file, or up to its error."""
        ran, after = TaskRun(), self._said.after
        if after is not None and not self._cut:
            self._compare_state(ran, after)
        task = self._begin(None)
        driver = task.start().driver
        self._work(task, ran, task.settings.event_time_idle_ms + 4 * task.settings.checkpoint_interval_ms)
        if ran.error is not None:  # what an error takes back
            self._take_uncommitted(driver.parts.runner, ran)
        for each in self._rows:
            with suppress(KeyError):  # it came to no reading
                ran.read[each] = driver.parts.inputs.reader.position(each)
        ran.checkpoints = driver.parts.counters["commits"]
        self._compare_outputs(ran)
        return ran

    def _begin(self, upto: Commit | None) -> HostedTask:
        """Return the task over its history; ``upto``: with no more input than this later commit has."""
        ends = {} if upto is None else {TopicPartition(e.topic, e.partition): e.offset for e in upto.external}
        last_t = None if upto is None or upto.deterministic is None else upto.deterministic.last_t
        decisions, history = self._decisions(last_t), self._history
        since = [*decisions, *self._recorded.calls]
        history.begin_at(self.wiring.changelog, self._commit, self.file.state(self._said.at), since)
        if self._cut and self.wiring.deterministic:
            ends |= self._decided_ends(decisions)
        for each in self._said.inputs:
            end = ends.get(each.at, each.end)
            history.put(each.at, each.begin, [row for row in self._rows[each.at] if row.offset < end])
        for each in self._said.outputs:
            history.put(each.at, 0, [])
        history.now_ms = max(history.now_ms, 1 + max((each.last_t for each in decisions), default=0) // 1_000)
        known = {name: self._said.settings[name] for name in Settings.__struct_fields__ if name in self._said.settings}
        settings = replace(
            msgspec.convert(known, Settings), downstream_lag_messages_max=(1 << 31) - 1
        )  # it has no reader here
        # only the run that is shown makes calls, and each once
        self._refused = None if self._makes_calls and upto is None else NoCalls(_not_in_file)
        return HostedTask(self._task, settings, history, no_sinks, self._refused)

    @property
    def _cut(self) -> bool:
        """Whether the log had more than is in the file."""
        return any(each.cut for each in (*self._said.inputs, self._said.changelog))

    def _decisions(self, last_t: int | None) -> list[InputDecision | IdleNote]:
        ends = {each.at: each.upto for each in self._said.inputs if each.cut}
        kept: list[InputDecision | IdleNote] = []
        for each in self._recorded.decisions:
            cut = isinstance(each, InputDecision) and (
                each.first_offset + each.records > ends.get(TopicPartition(each.topic, each.partition), 1 << 63)
            )
            if cut or (last_t is not None and each.last_t > last_t):
                break
            kept.append(each)
        return kept

    def _decided_ends(self, decisions: Sequence[InputDecision | IdleNote]) -> dict[TopicPartition, int]:
        """Return the ends of the inputs from outside with these decisions, if others follow that the file cuts."""
        if len(decisions) == len(self._recorded.decisions) and not self._said.changelog.cut:
            return {}
        self._decided_t = max((each.last_t for each in decisions), default=0)
        ends = {each.at: each.begin for each in self._said.inputs if not each.stream}
        for each in decisions:
            if isinstance(each, InputDecision):
                last = each.first_offset + each.records - 1 if each.rows is None else each.rows.last_offset
                ends[TopicPartition(each.topic, each.partition)] = last + 1
        return ends

    def _work(self, task: HostedTask, ran: TaskRun, linger_ms: int) -> None:
        """Let the task work until it has read all and time has passed for what waits for it, or until its error."""
        history, rest_ms = self._history, -1

        def is_through() -> bool:
            nonlocal rest_ms
            self._check_calls()
            if not (self._is_through(task) if linger_ms else task.has_committed_all):
                rest_ms = -1
            elif rest_ms < 0:
                rest_ms = history.now_ms
            return rest_ms >= 0 and history.now_ms - rest_ms >= linger_ms

        try:
            if not history.run([task], is_through, step_ms=lambda: STEP_MS, steps_max=STEPS_MAX):
                raise ConfigError("the task does not come to rest: its timers set each other again without end")
        except Exception as error:  # noqa: BLE001  # of the user's code, which is what is looked for
            ran.error = error if self._refused is None or self._refused.refused is None else self._refused.refused

    def _check_calls(self) -> None:
        if self._refused is not None and self._refused.refused is not None:  # the code may have caught it
            raise self._refused.refused

    def _is_through(self, task: HostedTask) -> bool:
        driver = None if task.process is None else task.process.driver
        if driver is None or not driver.running or not driver.mode.settled:
            return False
        reader = driver.parts.inputs.reader
        return all(reader.drained(at) for at in self._rows) and task.wall_timer_in_ms > 0

    # --- what came out ---

    def _compare_state(self, ran: TaskRun, after: StateOf) -> None:
        """Run up to the inputs of a later commit, and compare the state."""
        before_ms, first = self._history.now_ms, TaskRun()
        task = self._begin(decode_commit(self.file.part(after.commit)))
        self._work(task, first, 0)
        ran.states, ran.differences = compare_state(self._task.stage, self.file.state(after), _state_of(task))
        if first.error is not None:
            ran.states = None
        self._history.now_ms = before_ms

    def _compare_outputs(self, ran: TaskRun) -> None:
        for each in self._said.outputs:
            was = [made for made in self._made(each, self.file.rows(each), committed=True) if made.t <= self._decided_t]
            came = self._made(each, self._history.data.partition(each.at).rows)
            ran.outputs.append(compare(each.at, was, came, numbered=each.stream or self.wiring.deterministic))

    def _made(self, of: PackedRows, rows: Sequence[LogRow], *, committed: bool = False) -> list[MadeOutput]:
        """Return the task's outputs in a partition; ``committed``: only those of checkpoints that are."""
        wiring = self.wiring
        if of.stream:
            upto = self._said.last_checkpoint_id if committed and not wiring.deterministic else None
            made = in_stream(rows, rolls_back=not wiring.deterministic, upto=upto)
            return list(made.get(wiring.producer, {}).values())
        if not wiring.deterministic:
            return [unnumbered(row) for row in rows]
        return list(in_topic(rows).get(f"{self._said.job}/{wiring.name}", {}).values())

    def _take_uncommitted(self, runner: Runner, ran: TaskRun) -> None:
        producer = self.wiring.producer
        for partition, _, body in runner.take_frames():
            message = encode_header(Header(MessageType.FRAME, producer, 0, 0, 0)) + body
            made = in_stream([LogRow(0, 0, 0, None, message, None)], rolls_back=False)[producer]
            ran.uncommitted += [(partition, each) for each in made.values()]
        for record in runner.take_external():
            row = LogRow(0, 0, record.timestamp_ms, record.key, record.value, record.headers)
            ran.uncommitted.append((record.partition, unnumbered(row)))


def _state_of(task: HostedTask) -> State:
    return {
        (number, key): value
        for number, view in task.disk.stores.items()
        for key, value in view.values.items()
        if value is not None
    }


def halting_row(file: IncidentFile, error: FrameworkError) -> tuple[PackedRows, LogRow] | None:
    """Return the row that an error names, and where it is."""
    for each in file.manifest.inputs:
        if each.at == error.partition:
            found = [row for row in file.rows(each) if row.offset == error.offset]
            return (each, found[0]) if found else None
    return None
