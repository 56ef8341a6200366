"""Where a job lives on this machine: log, state, the workers' own logs; and how its code is found."""

import fcntl
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from framework.api.job import Job
from framework.core.wiring import TaskWiring
from framework.errors import ConfigError, FrameworkError
from framework.logs.open import (
    IN_DIRECTORY,
    LogAddress,
    check_address,
    check_topics,
    open_address,
    open_notes,
    pin_topics,
    read_notes,
    refuse_compacted,
)
from framework.ports import Log, LogReader
from framework.runtime.graph_pinning import check_graph, pin_graph
from framework.runtime.key_notes import rescale_note, rescaled
from framework.runtime.pinning import check_definition, pin_definition, take_state_of
from framework.settings import Settings, with_texts
from framework.stores.directory import make_private
from protocol.ids import TopicPartition

if TYPE_CHECKING:
    from framework.logs.open import Notes, NotesReader

_GUARANTEE = "guarantee"  # the note that pins it, and the modes behind it if they are not the usual one


class Place:
    """The directory of one job: embedded log ``log.db``, the tasks' stores below ``state``, worker logs below ``logs``.

    The parameter ``state`` names another directory for the stores: they are a cache of the changelogs. With ``address``
    the log is elsewhere.
    """

    def __init__(
        self, directory: Path, state: Path | None = None, address: LogAddress = IN_DIRECTORY, *, make: bool = True
    ) -> None:
        """Make the directory, readable by this user only, unless ``make`` is False. Raises ConfigError if it cannot."""
        check_address(address)
        self.directory = directory
        self.state_directory = directory / "state" if state is None else state
        self.address = address
        if make:
            make_private(directory)

    def open_log(self, *, create: bool = True, group: str = "grete") -> Log:
        """Open the log; lag tools see ``group``. Raises ConfigError if there is no file and ``create`` is False."""
        return open_address(self.address, self.directory / "log.db", group=group, create=create)

    def state(self, task: str) -> Path:
        """Return the directory of a task's store."""
        return self.state_directory / task

    def prebuilt(self, task: str) -> Path:
        """Return the directory in which a backfill leaves a task's state for its worker."""
        return self.directory / "prebuilt" / task

    def worker_log(self, partition: int) -> Path:
        """Return the file that a worker's log lines go to."""
        make_private(self.directory / "logs")
        return self.directory / "logs" / f"worker-{partition}.log"

    def lock_supervisor(self) -> int:
        """Become the one supervisor here; the lock ends with the process. Raises ConfigError if there is another."""
        path = self.directory / "supervisor.lock"
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(
                f"cannot open {path}: {error.strerror}: check its owner, or choose another --directory"
            ) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            other = os.pread(handle, 32, 0).decode() or "unknown"
            os.close(handle)
            raise ConfigError(
                f"{self.directory} already has a supervisor (process {other}): stop it first, "
                "or choose another --directory"
            ) from error
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        return handle


def create_topics(job: Job, log: Log, fed: Collection[str] | None = None) -> None:
    """Create every missing topic of the job (K1), of its external inputs those that are ``fed`` here; None: all.

    Raises ConfigError, before it creates any, if one of the others is missing, or if a topic does not fit.
    """
    for topic, partitions, plain in missing_topics(job, log, fed):
        log.create_topic(topic, partitions, plain=plain)


def missing_topics(job: Job, log: Log, fed: Collection[str] | None = None) -> list[tuple[str, int, bool]]:
    """Return (topic, partitions, whether it is plain) of what ``create_topics`` would create; write nothing.

    Raises ConfigError if an external input that is not ``fed`` here is missing, or a topic does not fit: it has another
    number of partitions, or settings that would lose data.
    """
    topology = job.topology()
    wanted: list[tuple[str, int, bool]] = []
    for stage in topology.stages:
        for topic in topology.externals_of(stage.ordinal):
            if fed is not None:
                _check_external(job, topic, stage.partitions, log.partitions(topic), fed=topic in fed)
            wanted.append((topic, stage.partitions, True))
    wanted += [(topology.changelog(stage.ordinal), stage.partitions, False) for stage in topology.stages]
    wanted += [(stream.topic, stream.partitions, False) for stream in topology.streams]
    for topic in job.external_sinks():
        if fed is None or log.partitions(topic) is None:  # else it is somebody's, with as many partitions as they like
            wanted.append((topic, job.stages[0].pinned_counts.get(topic, job.partitions), True))
    missing = []
    for topic, partitions, plain in wanted:
        if log.partitions(topic) is None:
            missing.append((topic, partitions, plain))
        else:
            log.create_topic(topic, partitions, plain=plain)  # it is there, so this only looks whether it fits
    return missing


def _check_external(job: Job, topic: str, needed: int, found: int | None, *, fed: bool) -> None:
    if found is None and not fed:
        raise ConfigError(
            f"there is no topic {topic}, which job {job.name!r} reads: check its name, or create it: "
            f"kafka-topics.sh --create --topic {topic} --partitions {needed}"
        )
    if found not in (None, needed):
        raise ConfigError(
            f"topic {topic} has {found} partitions, and job {job.name!r} has {needed}: write Job(…, partitions={found})"
        )


def pin_guarantee(notes: "Notes", job: str, settings: Settings, modes: str = "aligned") -> None:
    """Pin guarantee and modes at the first run: commits mean something else under others. Raises ConfigError then."""
    text = check_guarantee(notes, job, settings, modes)
    if text is not None:
        notes.produce_with_meta([], {_GUARANTEE: text.encode()})


def check_guarantee(notes: "NotesReader", job: str, settings: Settings, modes: str) -> str | None:
    """Return guarantee and modes if they are to be pinned: at the first run, or when stages were added last.

    Raises ConfigError: the job has run with others.
    """
    if "deterministic" in modes and settings.guarantee != "exactly-once":
        raise ConfigError(
            f"job {job!r} has deterministic stages, which are exactly once: drop the setting guarantee = "
            f"{settings.guarantee}, or the mode"
        )
    described = modes
    if "deterministic" in modes and settings.release != "transaction":
        described = f"{modes}, {settings.release}"
    text = settings.guarantee if described == "aligned" else f"{settings.guarantee} ({described})"
    raw = notes.meta_get(_GUARANTEE)
    if raw is None:
        return text
    guarantee, before, release = _parsed(pinned := raw.decode())
    both = all("deterministic" in each for each in (before, modes))
    stages, ours = before.split(","), modes.split(",")
    same = all(one == other for one, other in zip(stages, ours, strict=False))
    if guarantee != settings.guarantee or not same or (both and release != settings.release):
        raise ConfigError(
            f"the log of job {job!r} was made with guarantee {pinned}, not {text}: put that back, or "
            "choose another --directory; on Kafka, another name for the job"
        )
    return text if len(ours) > len(stages) else None


def _parsed(pinned: str) -> tuple[str, str, str]:
    """Return guarantee, modes and release as they are pinned."""
    guarantee, _, rest = pinned.partition(" ")
    modes, _, release = rest.strip("()").partition(", ")
    return guarantee, modes or "aligned", release or "transaction"


def pinned_settings(job: Job, log: LogReader, settings: Settings) -> Settings:
    """Return the settings with the guarantee that the job was made with, if it has run."""
    pinned = read_notes(log, job.name).meta_get(_GUARANTEE)
    if pinned is None:
        return settings
    guarantee, _, release = _parsed(pinned.decode())
    return with_texts(settings, {"guarantee": guarantee, "release": release})


def note_rescale(log: Log, job: Job, before: int, ends: Mapping[TopicPartition, int]) -> None:
    """Note before a rescale that ``job`` gets its partitions while its inputs end there: see ``placed_from``."""
    open_notes(log, job.name).produce_with_meta([], rescale_note(job.partitions, before, ends))


def placed_from(log: LogReader, job: Job) -> dict[TopicPartition, int]:
    """Return, of a job that was rescaled, from which offsets on records stand where their keys belong now."""
    found = rescaled(read_notes(log, job.name), job)
    return {} if found is None else found.ends


def prepare(
    job: Job,
    log: Log,
    place: Place,
    settings: Settings,
    fed: Collection[str] = (),
    tasks: Sequence[TaskWiring] | None = None,
    *,
    state_of: Job | None = None,
) -> "Notes":
    """Make and check what a job needs of its log, and return its notes; ``fed``: the external inputs fed from here.

    ``tasks`` are those that will run in this process, None: all. ``state_of``: a job whose state this one is to get.
    ``job`` takes over what its definition holds of ids and counts. A start that is refused writes nothing: all checks
    come first. Raises ConfigError, also if the code changes what it may not, Halted (a topic was made anew).
    """
    found = read_notes(log, job.name)
    check_guarantee(found, job.name, settings, job.modes)
    check_graph(job, log, tasks)
    if check_definition(job, log) is None and state_of is not None:
        take_state_of(state_of, job)
    missing = missing_topics(job, log, None if place.address.embedded else fed)
    topology = job.topology()
    stages = ((stage, job.stages[stage.ordinal].mode) for stage in topology.stages)
    deterministic = [stage for stage, mode in stages if mode == "deterministic"]
    absent = {topic for topic, _, _ in missing}
    theirs = {topic: s.name for s in deterministic for topic in topology.externals_of(s.ordinal) if topic not in absent}
    refuse_compacted(log, theirs)
    changelogs = (topology.changelog(stage.ordinal) for stage in topology.stages)
    read = (topic for stage in topology.stages for topic in topology.externals_of(stage.ordinal))
    pinned = sorted({*changelogs, *read, *(stream.topic for stream in topology.streams)})
    check_topics(log, found, [topic for topic in pinned if topic not in absent])
    for topic, partitions, plain in missing:
        log.create_topic(topic, partitions, plain=plain)
    notes = open_notes(log, job.name)
    pin_guarantee(notes, job.name, settings, job.modes)
    pin_graph(job, notes)
    pin_topics(log, notes, pinned)
    pin_definition(job, log, notes, place.state_directory)
    return notes


def load_job(reference: str) -> Job:
    """Return the ``job`` of a module (``tasks.word_count``) or file (``word_count.py``).

    Raises ConfigError saying what is missing, or what the module raised and where; errors of ours pass as they are.
    """
    try:
        module = _load_file(Path(reference)) if reference.endswith(".py") else _load_module(reference)
    except FrameworkError:
        raise
    except Exception as error:  # user code
        raise ConfigError(f"{reference} cannot be loaded: {type(error).__name__}: {error}{_where(error)}") from error
    job = getattr(module, "job", None)
    if not isinstance(job, Job):
        found = "nothing" if job is None else f"a {type(job).__name__}"
        raise ConfigError(f"{reference} must define job = Job(...); its name 'job' is bound to {found}")
    return job


def _where(error: Exception) -> str:
    """Return where user code raised; a SyntaxError says so itself."""
    frames = traceback.extract_tb(error.__traceback__)
    return (
        f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames and not isinstance(error, SyntaxError) else ""
    )


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"no file {path}: give the path of a Python file that defines job = Job(...)")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} cannot be loaded as Python")
    sys.path.insert(0, str(path.parent.resolve()))
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # before it runs: dataclasses and pickle look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
    return module


def _load_module(name: str) -> ModuleType:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise ConfigError(
                f"no module {name!r}: give a module such as tasks.word_count, or the path of a file"
            ) from error
        raise
