"""The options of the formats: which job, where its log is, what of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from framework.api.job import Job
from framework.errors import ConfigError
from framework.logs.open import EMBEDDED, LogAddress, open_address, open_notes
from framework.ports import Log
from framework.runtime.place import load_job

_COMMON = {"job", "log", "directory", "kafkaconfig"}


class Where(NamedTuple):
    """Where a job's log is: all that an executor needs to open it. The options' file must be there on every host."""

    url: str
    config: str
    file: str  # of the embedded log

    def open(self) -> Log:
        """Open the log, for reading. Raises ConfigError, TransientError."""
        config = Path(self.config) if self.config else None
        return open_address(LogAddress(self.url, config), Path(self.file), group="grete-spark", create=False)


class Options(NamedTuple):
    """What all formats are told: the job and its log."""

    job: Job
    where: Where
    own: dict[str, str]  # those of one format

    def is_aligned(self, log: Log) -> bool:
        """Whether the job's versions hold for all tasks together (exactly once)."""
        return open_notes(log, self.job.name).meta_get("guarantee") != b"at-least-once"


def read_options(options: Mapping[str, str], form: str, known: set[str]) -> Options:
    """Return what the options say; Spark gives their names in lower case. Raises ConfigError."""
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
    where = Where(url, config and str(Path(config).absolute()), str(directory / "log.db"))
    return Options(job, where, own)


def version_of(text: str | None) -> int | None:
    """Return the version that an option names. Raises ConfigError."""
    if text is None:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise ConfigError(f"option version = {text!r}: a version is a number, as grete checkpoints shows it") from error
