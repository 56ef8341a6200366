"""Problems of a job, with what to do: found in its workers' last reports, the worst first."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from urllib.parse import urlencode

from grete.clock_text import clock_text
from grete.core.supervision.process_end import WorkerEnd
from grete.findings import Finding, Level
from grete.halts import halt_code
from grete.monitor.health import keeps_up_s
from grete.monitor.job_view import JobView, WorkerView
from grete.protocol.report import ErrorPlace, Reason, TaskReport
from grete.worker.supervisor.ends import FREE_BYTES_MIN

BLOCKS_MS = 3_000  # in one call of user code, from which on a person is told: a worker's log has it after one
HOT_SHARE = 0.5  # of a task's time with one key: without it the task would be twice as fast
IDLE_SHARE = 0.2  # of the time of the other tasks of its stage: they could do more
BUSY_SHARE = 0.8  # of the last seconds with one task: its worker has hardly time for anything else

_ENDS: Mapping[Reason, tuple[str, str]] = {  # what, remedy
    "task error": (
        "a record or the code fails",
        (
            "repair the code; or let such records pass: errors=DeadLetter(Topic(…)) sends them to a topic of their "
            'own, errors="drop" counts them (docs/guides/bad-records.md)'
        ),
    ),
    "disk": (
        "the disk is full or fails",
        (
            "make room on the disk of the job's directory, or check it for errors. Nothing is lost: workers "
            "continue once there is room; if the job was given up meanwhile, start it again"
        ),
    ),
    "log away": (
        "the log does not answer",
        ("check the brokers and the network. Nothing is lost: the job continues by itself once they answer"),
    ),
    "hung": (
        "the code hangs",
        (
            "the traceback says where it was. A call to another system needs a time-out; a record that may take "
            "longer than liveness_timeout_ms needs a larger one"
        ),
    ),
    "killed": (
        "the process was killed",
        (
            "it is started again by itself. If it was not you: the kernel kills what uses too much memory (dmesg says "
            "so): lower rocksdb_bytes, or give it more"
        ),
    ),
    "aborted": (
        "a library aborts the process",
        (
            "it is started again by itself, and nothing is lost. If it happens again, report it with the last lines of "
            "its log: they name the library (librdkafka, RocksDB, one that the code imports) and the place in it"
        ),
    ),
    "store corrupted": (
        "a local store was damaged",
        "nothing: the next start restores it from the changelog. If it happens again, check the disk",
    ),
    "other": ("a worker crashes", "its log, in logs/ of the job's directory, has the error with its cause"),
}
CLOCKS_MS = 5_000  # more than clocks differ that are set by any network
NAMES_MAX = 5  # of tasks that a finding names
_TRANSIENT = ("killed", "aborted", "hung", "store corrupted")  # over with the next start, unless it comes again


class FindingAt(Finding, frozen=True, kw_only=True):
    """A finding at one place. ``since_ms``: its beginning, None: not known. ``link``: a view of the page, or ""."""

    since_ms: int | None = None
    link: str = ""


def findings_of(view: JobView) -> list[FindingAt]:
    """Return the troubles, errors before warnings; [] if there are none."""
    found = [*_of_machine(view, view, view.job), *_of_codes(view)]
    for other in view.others:
        found += _of_machine(view, other, f"{view.job} on {other.host}")
    for worker in view.workers:
        found += [*_of_worker(worker), *_of_silence(view, worker), *_of_blocked(view, worker)]
    for worker, task in view.tasks():
        found += [*_of_task_end(task), *_of_task(view, worker, task)]
    return sorted(found, key=lambda finding: finding.level != "error")


def _of_machine(whole: JobView, part: JobView, where: str) -> Iterator[FindingAt]:
    """Yield the troubles of one machine. ``part``: its part of the job."""
    free = part.disk_free_bytes
    if part.log_away is not None:
        what, remedy = _ENDS["log away"]
        yield FindingAt(level="error", what=what, where=where, value=part.log_away, remedy=remedy)
    if free is not None and free < FREE_BYTES_MIN:
        what, remedy = _ENDS["disk"]
        yield FindingAt(level="error", what=what, where=where, value=f"{free:,} bytes are free", remedy=remedy)
    if abs(part.ahead_ms) >= CLOCKS_MS:
        way = "ahead of" if part.ahead_ms > 0 else "behind"
        yield FindingAt(
            level="warning",
            what="two clocks differ",
            where=where,
            value=f"this machine's clock is {abs(part.ahead_ms) / 1_000:,.0f} s {way} the log's, which says "
            f"{_since(whole.log_ms)}",
            remedy="set the clocks of this machine and of the brokers by one source (NTP). Checkpoints, and the ages "
            "here, go by the log's clock, and are right; wall-clock timers and lines of logs go by this machine's",
        )


def _of_codes(view: JobView) -> Iterator[FindingAt]:
    known = {code: machines for code, machines in sorted(view.codes.items()) if code}
    if len(known) > 1:
        yield FindingAt(
            level="warning",
            what="members run different code",
            where=view.job,
            value="; ".join(f"{code} on {', '.join(machines)}" for code, machines in known.items()),
            remedy="while the code changes machine by machine, that is as it should be. Else give all of them the same "
            "code, and start those again that have another one",
        )


def _of_worker(worker: WorkerView) -> Iterator[FindingAt]:
    who, end = worker.place, worker.last_end
    if worker.fenced:
        yield FindingAt(
            level="error",
            what="another process has the partition",
            where=who,
            value="fenced: a newer worker has taken its tasks",
            remedy="look for a second supervisor or worker on this job; end one of the two",
        )
    elif end is not None:
        yield _of_end(worker, who, end)


def _of_silence(view: JobView, worker: WorkerView) -> Iterator[FindingAt]:
    """Yield a worker that says nothing: no thread of its process runs."""
    if not worker.is_silent:
        return
    if worker.stopped:
        what, remedy = "a worker process is stopped", f"`kill -CONT {worker.pid}` lets it go on, if it was not you"
    else:
        what = "a worker process says nothing"
        remedy = "look whether its machine has processor and memory for it, or C code holds the interpreter"
    since_ms = view.at_ms - round(worker.silent_s) * 1_000
    yield FindingAt(
        level="error",
        what=what,
        where=worker.place,
        since_ms=since_ms,
        link="tasks",
        value=f"pid {worker.pid}, {_partitions(worker)}: since {_since(since_ms)}{_who_waits(view, worker.tasks)}",
        remedy=f"{remedy}. If it does not go on for liveness_timeout_ms and a quarter, it is ended and started again, "
        "and nothing is lost",
    )


def _of_blocked(view: JobView, worker: WorkerView) -> Iterator[FindingAt]:
    """Yield a call of user code that does not end."""
    blocked = worker.blocked
    if blocked is None or view.at_ms - blocked.since_ms < BLOCKS_MS:
        return
    inner = "" if blocked.inner == blocked.at else f", which is at {blocked.inner}"
    held = worker.tasks if blocked.task is not None else ()
    yield FindingAt(
        level="error",
        what="your code blocks",
        where=blocked.task or f"{worker.place}, its calls",
        since_ms=blocked.since_ms,
        link="tasks",
        value=f"{blocked.at}{inner}: since {_since(blocked.since_ms)}{_who_waits(view, held)}",
        remedy="its worker does nothing else meanwhile. A call to another system needs a time-out, or is a Call "
        "(docs/guides/calls.md); after liveness_timeout_ms the worker ends, and is started again",
    )


def _partitions(worker: WorkerView) -> str:
    numbers = ", ".join(map(str, worker.partitions))
    return f"partition{'' if len(worker.partitions) == 1 else 's'} {numbers}"


def _who_waits(view: JobView, held: Collection[str]) -> str:
    """Return the tasks elsewhere that wait for one of these, in words, and since when the first one does."""
    waits = {task.name: task.behind for _, task in view.tasks() if task.behind is not None and task.name not in held}
    since_s = {name: behind.since_s for name, behind in waits.items() if not set(held).isdisjoint(behind.tasks)}
    if not since_s:
        return ""
    since = _since(view.at_ms - round(max(since_s.values())) * 1_000)
    return f". Waiting for it since {since}: {_names(sorted(since_s))}"


def _names(tasks: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(tasks) - NAMES_MAX} more" if len(tasks) > NAMES_MAX else ""
    return ", ".join(tasks[:NAMES_MAX]) + more


def _since(at_ms: int) -> str:
    """Return a time of this machine's clock, as its clock shows it."""
    return clock_text(at_ms, utc=True) + " UTC"


def _of_end(worker: WorkerView, who: str, end: WorkerEnd) -> FindingAt:
    if end.reason == "halted":
        code = halt_code(end.code)
        what, remedy = code.title, f"{code.remedy} Safe meanwhile: {code.safe} ({code.page})"
        return FindingAt(
            level="error",
            what=what,
            where=who,
            value=end.text,
            remedy=remedy,
            code=end.code,
            since_ms=end.at_ms,
            link=_records(end.place),
        )
    what, remedy = _ENDS[end.reason]
    first = end.reason in _TRANSIENT and worker.crashes < 2
    gave_up = f"given up after {worker.crashes} crashes: " if worker.halted and worker.crashes else ""
    level: Level = "warning" if first else "error"
    named = end.code if worker.halted else ""
    return FindingAt(
        level=level,
        what=what,
        where=who,
        value=gave_up + end.text,
        remedy=remedy,
        code=named,
        since_ms=end.at_ms,
        link=_records(end.place),
    )


def _records(place: ErrorPlace) -> str:
    """Return the view of the record at which something has failed, "": it is not known which."""
    at = place.topic_partition
    if at is None or place.offset is None:
        return ""
    return f"topics?{urlencode({'topic': at.topic, 'partition': at.partition, 'begin': place.offset})}"


def _of_task_end(task: TaskReport) -> Iterator[FindingAt]:
    """Yield the trouble of a task that has ended alone, and has not committed since."""
    end = task.end
    if end is None:
        return
    if end.reason == "fenced":
        what, remedy = "another process has the task", "look for a second supervisor or worker on this job"
    elif end.reason == "halted":
        code = halt_code(end.code)
        what, remedy = code.title, f"{code.remedy} Safe meanwhile: {code.safe} ({code.page})"
    else:
        what, remedy = _ENDS[end.reason]
    yield FindingAt(
        level="error",
        what=what,
        where=task.name,
        value=end.text,
        remedy=remedy,
        code=end.code,
        since_ms=end.at_ms,
        link=_records(end.place),
    )


def _of_task(view: JobView, worker: WorkerView, task: TaskReport) -> Iterator[FindingAt]:
    name, is_blocked = task.name, worker.blocked is not None and worker.blocked.task == task.name
    in_line = "" if worker.measures is None else worker.measures.in_line
    if task.sink_trouble is not None:
        yield FindingAt(
            level="error",
            what="a sink takes nothing",
            where=name,
            value=task.sink_trouble,
            remedy="check the sink and the network. Nothing is lost: outputs wait in the state, and are sent "
            "once it answers",
        )
    elif (share := view.busy.get(name, 0.0)) >= BUSY_SHARE and _holds_up(view, task) and not is_blocked:
        yield _of_slow(view, task, share, f"; {in_line}" if in_line else "")
    elif task.waits is not None:
        yield FindingAt(
            level="warning",
            what="a task waits for others",
            where=name,
            value=f"it waits {task.waits}",
            link="tasks",
            remedy="look at the tasks that it waits for: is their worker running?",
        )
    if failed := task.dropped.failed:
        yield FindingAt(
            level="warning",
            what="records failed and were dropped",
            where=name,
            value=f"{failed:,}; the last one: {task.last_failure}",
            remedy="repair the code or the input; errors=DeadLetter(Topic(…)) keeps such records",
        )
    if letters := task.measures.dead_letters:
        yield FindingAt(
            level="warning",
            what="records failed and are dead letters",
            where=name,
            value=f"{letters:,} since the worker started",
            link="letters",
            remedy="`grete dlq show` has their errors, `grete dlq redrive` sends them again once it is repaired",
        )


def _of_slow(view: JobView, task: TaskReport, share: float, line: str) -> FindingAt:
    """Return a stage that is too slow: because of one key, of one partition, or of all that it does."""
    hot = view.hot_keys(task.name)
    keys = "" if hot is None else f". Keys by time: {_shares(hot.by_time)}; by count: {_shares(hot.by_count)}"
    held = _names([each.name for _, each in view.tasks() if each.measures.held_up and each is not task])
    held = held and f". Held up meanwhile: {held}"
    others = [
        view.busy.get(each.name, 0.0) for _, each in view.tasks() if each.stage == task.stage and each is not task
    ]
    faster = "make process() faster: a call to another system may be a Call (docs/guides/calls.md)"
    what, remedy = "a stage is too slow", f"{faster}; or give the stage more partitions (docs/guides/upgrade.md)"
    if hot is not None and hot.by_time[0][1] >= HOT_SHARE:
        what = "a key is hot"
        remedy = (
            f"more partitions do not help: a key has one task. {faster}; or split (salt) the key, as by a number at "
            "its end, and combine the parts in the next stage"
        )
    elif others and max(others) < IDLE_SHARE:
        what = "a partition is hot"
        remedy = f"{faster}. More partitions help if they split its keys; see whether the producers spread keys evenly"
    return FindingAt(
        level="error",
        what=what,
        where=task.name,
        value=f"its worker spends {share:.0%} of its time with it, and it falls behind{line}{keys}{held}",
        link=f"tasks?{urlencode({'stage': task.stage})}",
        remedy=remedy,
    )


def _shares(keys: Sequence[tuple[str, float]]) -> str:
    return ", ".join(f"{key} {share:.0%}" for key, share in keys)


def _holds_up(view: JobView, task: TaskReport) -> bool:
    """Tell whether a task falls behind, or others take no input because a later stage is slow."""
    age_s = view.age_s(task)
    if age_s is not None and age_s > keeps_up_s(view):
        return True
    return any(other.measures.held_up for _, other in view.tasks() if other.name != task.name)
