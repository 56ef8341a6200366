"""Reads the committed state of a job from outside of its workers, also while they run.

Every task's store is opened as a RocksDB *secondary*: it reads the files of the owner, follows its write-ahead log,
takes no lock and writes nothing there. What is in RocksDB is committed (A9): nothing that is read is ever rolled back.
"""

import copy
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from rocksdict import AccessType, Options, Rdict

from grete.api.jobs.changes import refuse_changes
from grete.api.jobs.definition import changes_of_state, decode_definition, take_over
from grete.api.jobs.graph import StageGraph
from grete.api.jobs.job import Job
from grete.api.jobs.versions import as_declared
from grete.api.serdes.key import prefix_of
from grete.api.serdes.serde import Serde, decode_error, encode_error, functions_of, placing_in_store
from grete.api.store import Store
from grete.closable import Closable
from grete.errors import ConfigError, TransientError
from grete.execution.timing.reserved_stores import META, STREAM_TIME
from grete.protocol.changelog_position import decode_changelog_position
from grete.protocol.partitioner import partition_of
from grete.state.read.live_entries import unexpired_of
from grete.stores.rocksdb.store import CHANGELOG_POSITION

K = TypeVar("K")
V = TypeVar("V")

_META = f"{META}._meta"  # the column family
DEFINITION = "definition.json"  # of the job, beside the stores: by which serdes they were written


class LocalReader(Closable):
    """The stores of all tasks of a job below ``directory``. Each read sees at least what was committed before it.

    A store's partition is that of the record that was processed, which its key need not tell: so reads ask all of them,
    the one of murmur2(key) first. A scan may show a part of the commit that the worker is writing: ``NewestReader``
    shows whole commits. Not thread safe.
    """

    def __init__(self, directory: Path, job: Job) -> None:
        """Open no store yet. Raises ConfigError if the job's code would misread the state that is there."""
        self._directory = directory
        self._job = _as_defined(directory, job)
        self._open: dict[str, _Secondary] = {}
        self._scratch = Path(tempfile.mkdtemp(prefix="grete-reader-"))  # for RocksDB's own files

    def get(self, store: Store[K, V], key: K) -> V | None:
        """Return the value or None. Raises ConfigError (no such store, or no state yet), SerdeError, TransientError."""
        return next((value for _, value in self.find(store, key)), None)

    def find(self, store: Store[K, V], key: K) -> Iterator[tuple[int, V]]:
        """Yield (partition, value) from each partition that has the key."""
        for partition in places_of(self._job, store, key_bytes(self._job, store, key)):
            self.changelog_position(self._task_of(store, partition))
            value = self.at(store, key, partition)
            if value is not None:
                yield partition, value

    def at(self, store: Store[K, V], key: K, partition: int) -> V | None:
        """Return the value that one partition had when its changelog position was read last, or None."""
        _, family = self._place_of(store)
        seen, raw_key = self._seen(self._task_of(store, partition)), key_bytes(self._job, store, key)
        raw = seen.get(family, raw_key)
        rows = () if raw is None else unexpired_of(store, [(raw_key, raw)], seen.get(_META, STREAM_TIME))
        return next((decoded_row(store, *row)[1] for row in rows), None)

    def changelog_position(self, task: str) -> bytes | None:
        """Return the commit whose state a task's store has now, as the store tells it. Raises ConfigError: no store.

        Its worker may have written a part of the next commit by now, unless that commit is not in the changelog yet.
        """
        raw, since = self._secondary(task).changelog_position(), self._job.migrated
        if raw is not None and since is not None and decode_changelog_position(raw).checkpoint_id < since:
            raise ConfigError(
                f"the state of task {task} in {self._directory} is from before grete migrate, and keys have other "
                "bytes now: the next start of its worker brings it up"
            )
        return raw

    def look_again(self, store: Store[Any, Any], partition: int) -> bool:
        """Close a task's stores if they lack this one, which new code may have added since; return whether they did."""
        task, family = self._task_of(store, partition), self._place_of(store)[1]
        lacks = task in self._open and not self._open[task].has(family)
        if lacks:
            self._open.pop(task).close()
        return lacks

    def starting(self, store: Store[K, V], prefix: bytes, partition: int) -> Iterator[tuple[K, V]]:
        """Yield (key, value) whose encoded key starts with ``prefix``, in key order.

        They are of the moment when the changelog position of this partition was read last.
        """
        for key, value in self.raw(store, prefix, partition):
            yield decoded_row(store, key, value)

    def raw(
        self, store: Store[Any, Any], prefix: bytes, partition: int, begin: bytes = b""
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the same as bytes, from the key ``begin`` on."""
        _, family = self._place_of(store)
        seen = self._seen(self._task_of(store, partition))
        yield from unexpired_of(store, seen.scan(family, prefix, begin), seen.get(_META, STREAM_TIME))

    def stored(self, store: Store[Any, Any], partition: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield all entries as they are stored, as of the moment when this changelog position was read last."""
        _, family = self._place_of(store)
        return self._seen(self._task_of(store, partition)).scan(family, b"")

    def prefix(
        self, store: Store[K, V], prefix: K | tuple[Any, ...], partition: int | None = None
    ) -> Iterator[tuple[K, V]]:
        """Yield (key, value) whose encoded key starts with the encoded ``prefix``, in key order within a partition."""
        return self._scan(store, prefix_bytes(self._job, store, prefix), partition)

    def all(self, store: Store[K, V], partition: int | None = None) -> Iterator[tuple[K, V]]:
        """Yield every (key, value), of one partition or of all."""
        return self._scan(store, b"", partition)

    def store(self, name: str) -> Store[Any, Any]:
        """Return the store of that name; ``stage/store`` where several stages have one. Raises ConfigError."""
        return store_named(self._job, name)

    def close(self) -> None:
        """Release the files."""
        for secondary in self._open.values():
            secondary.close()
        self._open.clear()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _scan(self, store: Store[K, V], prefix: bytes, partition: int | None = None) -> Iterator[tuple[K, V]]:
        tasks = place_of(self._job, store)[0].partitions
        for number in range(tasks) if partition is None else (partition,):
            self.changelog_position(self._task_of(store, number))
            yield from self.starting(store, prefix, number)

    def _task_of(self, store: Store[Any, Any], partition: int) -> str:
        return f"{self._place_of(store)[0]}-{partition}"

    def _place_of(self, store: Store[Any, Any]) -> tuple[str, str]:
        """Return (stage, column family) of a declared store."""
        stage, number = place_of(self._job, store)
        return stage.name, f"{number}.{store.name}"

    def _seen(self, task: str) -> "_Secondary":
        """Return the store of a task as it was looked at last."""
        return self._open[task] if task in self._open else self._secondary(task)

    def _secondary(self, task: str) -> "_Secondary":
        """Return the store of a task as it is now; it is opened again after a wipe has replaced it."""
        path, known = self._directory / task, self._open.get(task)
        try:
            if known is not None:
                if known.is_current():
                    return known
                known.close()
            self._open[task] = _Secondary(path, self._scratch / task)
        except FileNotFoundError as error:
            raise ConfigError(f"no state of task {task} in {self._directory}: run the job first") from error
        except Exception as error:  # rocksdict has one class for everything
            raise TransientError(
                f"cannot read {path} now: {error}: its worker may be restoring it; try again"
            ) from error
        return self._open[task]


class _Secondary:
    """One task's RocksDB, followed."""

    def __init__(self, path: Path, scratch: Path) -> None:
        self._path = path
        self._inode = path.stat().st_ino
        (path / "CURRENT").stat()  # or rocksdict would take long to say that there is nothing
        families = [name for name in Rdict.list_cf(str(path), _options()) if name != "default"]
        access = AccessType.secondary(str(scratch))
        self._db = Rdict(str(path), _options(), {name: _options() for name in families}, access_type=access)
        self._families = {name: self._db.get_column_family(name) for name in families}
        self._db.try_catch_up_with_primary()

    def is_current(self) -> bool:
        """Catch up with the owner; False if the directory is another one now."""
        if self._path.stat().st_ino != self._inode:
            return False
        try:
            self._db.try_catch_up_with_primary()
        except Exception:  # noqa: BLE001  # files went away under it: a new look at them all decides
            return False
        return True

    def has(self, family: str) -> bool:
        return family in self._families

    def changelog_position(self) -> bytes | None:
        value: bytes | None = self._db.get(CHANGELOG_POSITION)
        return value

    def get(self, family: str, key: bytes) -> bytes | None:
        stored = self._families.get(family)
        value: bytes | None = None if stored is None else stored.get(key)
        return value

    def scan(self, family: str, prefix: bytes, begin: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        stored = self._families.get(family)
        if stored is None:
            return
        iterator = stored.iter()
        iterator.seek(max(prefix, begin))
        while iterator.valid():
            key: bytes = iterator.key()
            if not key.startswith(prefix):
                return
            yield key, iterator.value()
            iterator.next()
        iterator.status()  # the end, or a block that cannot be read: only the status tells

    def close(self) -> None:
        for family in self._families.values():
            family.close()
        self._db.close()


def decoded_row(store: Store[K, V], key: bytes, value: bytes) -> tuple[K, V]:
    """Return an entry of a store. Raises SerdeError: these are not bytes of the store's serdes."""
    decode_key, decode_value = functions_of(store.key)[1], functions_of(store.value)[1]
    serde: Serde[Any] = store.key
    try:
        decoded = decode_key(key)
        serde = store.value
        return decoded, decode_value(value)
    except Exception as error:
        data = key if serde is store.key else value
        raise decode_error(serde, data, error, f"store {store.name}: ") from error


def _as_defined(directory: Path, job: Job) -> Job:
    """Return the job with the ids of the stores that are in a directory. Raises ConfigError: its code misreads them."""
    try:
        raw = (directory / DEFINITION).read_bytes()
    except FileNotFoundError:
        return job  # of a release that pinned none: the stores' own serdes must refuse what does not fit
    except OSError as error:
        raise ConfigError(f"cannot read {directory / DEFINITION}: {error.strerror}: check its owner") from error
    definition = decode_definition(raw)
    refuse_changes(job, changes_of_state(definition, job))
    here = copy.copy(job)  # another directory, and the log, may have more stores
    take_over(definition, here)
    return here


def _options() -> Options:
    options = Options(raw_mode=True)
    options.set_max_open_files(-1)  # all files stay open: the owner may delete them
    options.set_keep_log_file_num(1)
    return options


def store_named(job: Job, name: str) -> Store[Any, Any]:
    """Return the store of that name; ``stage/store`` where several stages have one. Raises ConfigError."""
    stage_name, _, store_name = name.rpartition("/")
    stages = [job.stage(stage_name)] if stage_name else job.stages
    found = [(stage, store) for stage in stages for store in _stores(stage) if store_name in (store.name, store.shown)]
    if len(found) == 1:
        return found[0][1]
    known = ", ".join(f"{stage.shown}/{store.shown}" for stage in job.stages for store in _stores(stage))
    raise ConfigError(f"{'several stores are' if found else 'no store is'} called {name!r}: there are {known}")


def place_of(job: Job, store: Store[Any, Any]) -> tuple[StageGraph, int]:
    """Return (stage, store id) of a declared store. Raises ConfigError."""
    stage, found = _declared(job, store)
    return stage, stage.store_ids()[found.name]


def key_bytes(job: Job, store: Store[K, Any], key: K) -> bytes:
    """Return a key as the job writes it, by its version of the serdes. Raises ConfigError, SerdeError."""
    return _declared(job, store)[1].key.encode(key)


def prefix_bytes(job: Job, store: Store[K, Any], prefix: K | tuple[Any, ...]) -> bytes:
    """Return the bytes with which the keys begin that begin with a prefix. Raises ConfigError, SerdeError."""
    serde = _declared(job, store)[1].key
    try:
        return prefix_of(serde)(prefix)
    except Exception as error:
        raise encode_error(serde, prefix, error, f"store {store.name}: ") from error


def places_of(job: Job, store: Store[Any, Any], raw_key: bytes) -> list[int]:
    """Return the partitions of a store, the one first where its key belongs by murmur2."""
    tasks, placing = place_of(job, store)[0].partitions, placing_in_store(_declared(job, store)[1].key)
    first = partition_of(raw_key if placing is None else placing(raw_key), tasks)
    return [first, *(partition for partition in range(tasks) if partition != first)]


def _declared(job: Job, store: Store[K, V]) -> tuple[StageGraph, Store[K, V]]:
    """Return the stage that declares a store, and the store as the job has it."""
    for stage in job.stages:
        for declared in _stores(stage):
            if declared is store or as_declared(declared) is store:
                return stage, declared
    raise ConfigError(f"store {store.name!r} is not declared by a task of job {job.name!r}")


def _stores(stage: StageGraph) -> list[Store[Any, Any]]:
    return stage.all_stores()
