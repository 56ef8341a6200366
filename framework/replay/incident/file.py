"""The file of an incident: a zip with ``manifest.json``, which names each other part with its size and digest."""

import contextlib
import hashlib
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from grete.errors import ConfigError, FrameworkError
from grete.execution.records.user_traceback import user_traceback
from grete.ports import LogRow
from grete.protocol.ids import TopicPartition

FORMAT = 1  # of the manifest and the parts: a reader refuses a higher one
MANIFEST = "manifest.json"
MANIFEST_BYTES_MAX = 16 << 20  # it is read before anything is known of the file; a usual one has 20 KB
BYTES_MAX = 4 << 30  # unpacked: twice what --max-mib allows, because a small file may not fill a memory
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*")  # no "..", no "/" first
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the others unpack all of what they read, whatever is asked for
_Whole = TypeVar("_Whole")


class PackedRows(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one partition, from offset ``begin`` on. ``end``: that of the partition; ``upto``: of the rows.

    ``stream``: between two stages of the job; else from outside, or to there.
    """

    topic: str
    partition: int
    part: str
    stream: bool
    begin: int
    upto: int
    end: int
    rows: int
    bytes: int

    @property
    def at(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def cut(self) -> bool:
        """Whether the partition has more than was packed."""
        return self.upto < self.end


class StateOf(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the task at a checkpoint, and where its commit is. ``stores``: name → entries and bytes."""

    checkpoint_id: int
    offset: int
    append_time_ms: int
    part: str
    commit: str
    stores: dict[str, tuple[int, int]]


class PackedCode(msgspec.Struct, frozen=True, kw_only=True):
    """The code of the job: ``reference`` is what loads it where the files are unpacked."""

    reference: str
    files: dict[str, str]  # path from the folder of the code → part


class EndLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The line of a worker's log that says why it ended."""

    timestamp: str = ""
    level: str = ""
    id: str | None = None
    event: str = ""
    job: str | None = None
    worker: int | None = None
    task: str | None = None
    stage: str | None = None
    partition: int | None = None
    generation: int | None = None
    topic: str | None = None
    offset: int | None = None
    checkpoint_id: int | None = None
    setting: str | None = None
    kind: str | None = None
    code: str | None = None
    error: str | None = None
    cause: str | None = None
    traceback: str | None = None
    exc_info: str | None = None

    def without_values(self) -> "EndLine":
        """Return the line without the texts that may quote a record."""
        return replace(self, error=None, cause=None, traceback=None, exc_info=None)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of an incident file. ``values`` False: keys, values and headers are lengths and digests."""

    format: int = FORMAT
    job: str
    reference: str
    task: str
    stage: str
    partition: int
    mode: str
    made: str  # when, UTC
    values: bool
    at: StateOf
    after: StateOf | None  # the last commit, if that is a later one and the state there can be compared
    last_checkpoint_id: int
    changelog: PackedRows
    inputs: list[PackedRows]
    outputs: list[PackedRows]
    topics: dict[str, int]  # partitions
    metadata: dict[str, str]  # what the job has pinned
    settings: dict[str, str | int | float]
    log: str
    options: dict[str, str]
    versions: dict[str, str]
    code: PackedCode | None
    fingerprint: str  # of the job's code, packed or not
    error: EndLine | None
    digests: dict[str, tuple[int, str]]  # part → bytes, SHA-256


def encode(value: object) -> bytes:
    """Return a part."""
    return msgspec.msgpack.encode(value)


def write(path: Path, manifest: Manifest, parts: Mapping[str, bytes]) -> None:
    """Write the file as a whole or not at all. Raises ConfigError if it is there, or cannot be written."""
    if path.exists():
        raise ConfigError(f"{path} exists: name another file with --output, or move it away")
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)  # it holds what the job holds
        with os.fdopen(descriptor, "wb") as out:
            with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
                packed.writestr(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
                for name, data in parts.items():
                    packed.writestr(name, data)
            out.flush()
            os.fsync(out.fileno())
        os.link(scratch, path)  # as ``rename``, but it never replaces a file that came meanwhile
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}: name another file with --output") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            scratch.unlink()


def digest_of(data: bytes) -> tuple[int, str]:
    """Return the manifest's entry of a part."""
    return len(data), hashlib.sha256(data).hexdigest()


def _unpacked(packed: zipfile.ZipFile, name: str, size: int) -> bytes:
    """Return the first ``size`` bytes of a part: ``read`` of the archive unpacks 2 GiB before it looks at a size."""
    with packed.open(name) as part:
        return part.read(size)


class IncidentFile:
    """A file whose manifest, names and sizes were checked. A part is unpacked, and checked, when it is asked for."""

    def __init__(self, path: Path) -> None:
        """Read the manifest. Raises ConfigError: no such file, no incident, damaged, of a newer release."""
        self.path = path
        with self._opened() as packed:
            self.manifest = self._manifest(packed)
            self._check_names(packed)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[zipfile.ZipFile]:
        """Open the file in here. Raises ConfigError: there is none, or what is done with it shows damage."""
        path = self.path
        try:
            with zipfile.ZipFile(path) as packed:
                yield packed
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise ConfigError(f"no file {path}: make one by grete incident pack JOB") from error
        except (
            OSError,
            zipfile.BadZipFile,
            zipfile.LargeZipFile,
            NotImplementedError,
            RuntimeError,
            EOFError,
        ) as error:
            raise ConfigError(f"{path} is not the whole file of an incident: {error}: copy it again") from error
        except Exception as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"{path} is damaged: {type(error).__name__}: {error}: copy it again") from error

    def _manifest(self, packed: zipfile.ZipFile) -> Manifest:
        names = packed.namelist()
        if MANIFEST not in names:
            raise ConfigError(f"{self.path} is no file of an incident: it holds no {MANIFEST}")
        if any(each.compress_type not in _METHODS for each in packed.infolist()):
            raise self._refused("it is compressed in another way than Grete does")
        size = packed.getinfo(MANIFEST).file_size
        if size > MANIFEST_BYTES_MAX:
            raise self._refused(f"its {MANIFEST} has more than {MANIFEST_BYTES_MAX:,} bytes")
        raw = _unpacked(packed, MANIFEST, size)
        found = msgspec.json.decode(raw)
        version = found.get("format") if isinstance(found, dict) else None
        if not isinstance(version, int):
            raise self._refused(f"its {MANIFEST} names no format")
        if version > FORMAT:
            raise ConfigError(
                f"{self.path} has format {version}, and this release of Grete reads up to {FORMAT}: upgrade Grete"
            )
        try:
            return msgspec.convert(found, Manifest)
        except msgspec.ValidationError as error:
            raise self._refused(f"its {MANIFEST} says something else than it should: {error}") from error

    def _check_names(self, packed: zipfile.ZipFile) -> None:
        """Check the names and sizes of all parts: nothing is unpacked under a name of the file, or to fill a memory."""
        said = self.manifest.digests
        names = packed.namelist()
        strange = [name for name in {*names, *said} if name != MANIFEST and not _NAME.fullmatch(name)]
        if strange:
            raise self._refused(f"it has a part {min(strange)!r}, which is no plain path")
        if sorted(names) != sorted([MANIFEST, *said]):
            odd = sorted({*names, MANIFEST} ^ {MANIFEST, *said}) or ["one of them, twice"]
            raise self._refused(f"its parts are not those that its manifest names: {odd[0]}")
        if sum(size for size, _ in said.values()) > BYTES_MAX:
            raise self._refused(f"its parts have more than {BYTES_MAX >> 30} GiB")
        for name, (size, _) in said.items():
            if packed.getinfo(name).file_size != size:
                raise self._refused(f"its part {name} has {packed.getinfo(name).file_size:,} bytes, not {size:,}")

    def _refused(self, why: str) -> ConfigError:
        return ConfigError(f"{self.path} is refused: {why}: it is damaged or was changed, so copy it again")

    @contextlib.contextmanager
    def believed(self) -> Iterator[None]:
        """Do what the file says in here. Raises ConfigError if that cannot be done: its digests are its own.

        What the job's code raises is kept by the run, and comes out of it as a result.
        """
        try:
            yield
        except FrameworkError:
            raise
        except Exception as error:
            if user_traceback(error) is not None:
                raise
            raise self._refused(f"what it says cannot be done: {type(error).__name__}: {error}") from error

    def part(self, name: str) -> bytes:
        """Unpack a part. Raises ConfigError: it has another digest, or the manifest names one that is not there."""
        said = self.manifest.digests.get(name)
        if said is None:
            raise self._refused(f"its manifest names a part {name!r} that it does not have")
        with self._opened() as packed:
            data = _unpacked(packed, name, said[0])
        if digest_of(data) != said:
            raise self._refused(f"its part {name} has another digest than the manifest says")
        return data

    def rows(self, of: PackedRows) -> list[LogRow]:
        """Return the rows of a partition. Raises ConfigError."""
        return self._decoded(of.part, list[LogRow])

    def state(self, of: StateOf) -> dict[tuple[int, bytes], bytes]:
        """Return (store id, key) → value. Raises ConfigError."""
        entries = self._decoded(of.part, list[tuple[int, bytes, bytes]])
        return {(store, key): value for store, key, value in entries}

    def _decoded(self, name: str, kind: type[_Whole]) -> _Whole:
        try:
            return msgspec.msgpack.decode(self.part(name), type=kind)
        except msgspec.MsgspecError as error:
            raise self._refused(f"its part {name} cannot be read: {error}") from error

    def unpack_code(self, folder: Path) -> str:
        """Write the job's code below an empty folder; return what loads it. Raises ConfigError: there is none."""
        code = self.manifest.code
        if code is None:
            raise ConfigError(
                f"{self.path} was made with --no-code: give the code of job {self.manifest.job!r} with --job"
            )
        for name, part in code.files.items():
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or not path.parts:
                raise self._refused(f"it has code for {name!r}, which is outside of its folder")
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(self.part(part))
        if code.reference not in code.files and code.reference.endswith(".py"):
            raise self._refused(f"its code has no {code.reference!r}")
        return str(folder / code.reference) if code.reference.endswith(".py") else code.reference
