"""The options of the formats: which job, where its log is, what of it."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from grete.api.jobs.graph import StageGraph
from grete.api.jobs.job import Job
from grete.api.store import Store
from grete.errors import ConfigError
from grete.job.loader import load_job
from grete.job.metadata import pinned_settings
from grete.logs.address import EMBEDDED, LogAddress, open_address, open_reader
from grete.ports import JobLog, JobLogReader
from grete.settings import Settings, from_environment
from grete.state.pins.pinning import know_dropped
from grete.state.read.checkpoints.nearest import AsOf, as_of

_GROUP = "grete-spark"
_COMMON = {"job", "log", "directory", "kafkaconfig"}


class LogSpec(NamedTuple):
    """The address of a job's log: all that an executor needs to open it. Every host must have the options' file."""

    url: str
    config: str
    file: str  # of the embedded log

    @property
    def directory(self) -> Path:
        """The job's directory."""
        return Path(self.file).parent

    @property
    def embedded(self) -> bool:
        """Whether it is a file in the job's directory."""
        return self.url == EMBEDDED

    def open(self) -> JobLogReader:
        """Open the log to read it. Raises ConfigError, TransientError."""
        config = Path(self.config) if self.config else None
        return open_reader(LogAddress(self.url, config), Path(self.file), group=_GROUP)

    def open_to_write(self, *, create: bool = False) -> JobLog:
        """Open the log; ``create``: make its file if there is none. Raises ConfigError, TransientError."""
        config = Path(self.config) if self.config else None
        return open_address(LogAddress(self.url, config), Path(self.file), group=_GROUP, create=create)


def where_of(directory: Path, address: LogAddress) -> LogSpec:
    """Return the place of a job's log, with paths that executors understand."""
    config = "" if address.config is None else str(address.config.absolute())
    return LogSpec(address.url, config, str((directory / "log.db").absolute()))


class Options(NamedTuple):
    """The options of all formats: the job and its log."""

    job: Job
    where: LogSpec
    own: dict[str, str]  # those of one format

    def is_aligned(self, log: JobLogReader) -> bool:
        """Whether the job's checkpoints hold for all tasks together."""
        return self.settings(log).aligned

    def settings(self, log: JobLogReader) -> Settings:
        """Return the settings of the environment, with the processing guarantee that the job was made with."""
        return pinned_settings(self.job, log, from_environment(dict(os.environ)))


def read_options(options: Mapping[str, str], form: str, known: set[str]) -> Options:
    """Return the parsed options; Spark gives their names in lower case. Raises ConfigError."""
    own = {name.lower(): value for name, value in options.items()}
    unknown = sorted(own.keys() - _COMMON - known - {"path"})
    if unknown:
        raise ConfigError(
            f"format {form}: unknown option {unknown[0]!r}: known are {', '.join(sorted(_COMMON | known))}"
        )
    if "job" not in own:
        raise ConfigError(f"format {form}: option job is missing: a module such as tasks.word_count, or a file")
    job = load_job(own["job"])
    url, config = own.get("log", EMBEDDED), own.get("kafkaconfig", "")
    directory = Path(own.get("directory") or Path(".grete") / job.name).absolute()
    where = LogSpec(url, config and str(Path(config).absolute()), str(directory / "log.db"))
    return Options(job, where, own)


def know_serdes(options: Options) -> None:
    """Let the job write by the version of the serdes that it has pinned. Raises ConfigError, TransientError."""
    if options.where.embedded and not Path(options.where.file).exists():
        return  # a new job
    log = options.where.open()
    try:
        know_dropped(options.job, log)
    finally:
        log.close()


def checkpoint_of(text: str | None) -> AsOf | None:
    """Return the checkpoint, or the time, that an option names. Raises ConfigError."""
    try:
        return None if text is None else as_of(text)
    except ValueError as error:
        raise ConfigError(f"option checkpoint = {text!r}: {error}") from error


def starting_offsets(options: Options) -> str | dict[int, int]:
    """Return the start of a query in a topic: earliest, latest, or offsets by partition. Raises ConfigError."""
    text = options.own.get("startingoffsets", "earliest")
    if text in ("earliest", "latest"):
        return text
    try:
        return {int(number): int(offset) for number, offset in json.loads(text).items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigError(
            f'option startingOffsets = {text!r}: it is earliest, latest, or offsets such as {{"0": 12, "1": 15}}'
        ) from error


def batch_limit(options: Options, name: str) -> int | None:
    """Return the most that a batch may hold, None: all that is there. Raises ConfigError."""
    text = options.own.get(name.lower())
    if text is None:
        return None
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise ConfigError(f"option {name} = {text!r}: it is a number from 1 on")


def find_store(options: Options) -> tuple[StageGraph, Store[Any, Any]]:
    """Return the store that the options name, and its stage. Raises ConfigError listing all there are."""
    wanted = options.own.get("store", "")
    stage_name, _, store_name = wanted.rpartition("/")
    every = [(stage, store) for stage in options.job.stages for store in stage.all_stores()]
    found = [
        (stage, store)
        for stage, store in every
        if store_name in (store.name, store.shown) and stage_name in ("", stage.name, stage.shown)
    ]
    if len(found) == 1:
        return found[0]
    known = ", ".join(f"{stage.shown}/{store.shown}" for stage, store in every) or "none"
    reason = "is missing" if not wanted else f"= {wanted!r}: {'several are' if found else 'none is'} called so"
    raise ConfigError(f"option store {reason}: job {options.job.name!r} has {known}")
