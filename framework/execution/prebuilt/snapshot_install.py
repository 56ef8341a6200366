"""The start of a worker on a new machine: a store takes a snapshot's files, if the log confirms their commit (0090)."""

import logging
import shutil
import time
from collections.abc import Callable, Generator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from grete.core.graph.task_topology import TaskWiring
from grete.errors import ConfigError, FrameworkError, StoreCorrupted, TransientError
from grete.execution.prebuilt.sst_install import check_commit
from grete.ports import LogReader
from grete.protocol.changelog_position import decode_changelog_position, encode_changelog_position
from grete.settings import without_password
from grete.stores.rocksdb.store import RocksStore
from grete.stores.snapshot_folder import SnapshotFolder, SnapshotManifest
from grete.stores.store_directory import make_private

T = TypeVar("T")
Steps = Generator[Callable[[], Any], Any, T]  # yields each long step, and goes on with its result, or its error


def at_once(steps: Steps[T]) -> T:
    """Take all long steps here and now, and return the result. Raises what the work raises."""
    try:
        step = next(steps)
        while True:
            try:
                result = step()
            except FrameworkError as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as ended:
        done: T = ended.value
        return done


logger = logging.getLogger("grete")

TRIES_MAX = 3  # of snapshots that are damaged, before the changelog is read
_TELL_S = 10.0  # between two lines about a long download


class SnapshotTaker:
    """The snapshot for one task's store. If anything is wrong with it, the task's start reads the changelog (R1)."""

    def __init__(self, job: str, wiring: TaskWiring, log: LogReader, stores: Mapping[int, str]) -> None:
        """``stores``: as the task declares them."""
        self._job, self._wiring, self._log, self._stores = job, wiring, log, stores
        self.given_up = False  # set by another thread: a fetch that is under way ends
        self.moves = 0  # how often something has come, for another thread

    def take(self, url: str, store: RocksStore, directory: Path) -> None:
        """Take all ``steps`` here and now."""
        at_once(self.steps(url, store, directory))

    def steps(self, url: str, store: RocksStore, directory: Path) -> Steps[None]:
        """Fill a store that its changelog cannot bring up to date from the newest snapshot that fits; log the result.

        ``url``: of the snapshots, "" for none; ``directory``: of the store. A store that is not filled is as it was, or
        empty. The long steps use the folder and the disk, neither the log nor the store. Raises TransientError: the log
        does not answer.
        """
        fetched = directory.with_name(f"{directory.name}.fetched")
        own = store.changelog_position()
        start, end = self._log.bounds(self._wiring.changelog) if url else (0, 0)
        if start < end and (own is None or decode_changelog_position(own).offset < start):
            tried: set[str] = set()
            while (found := (yield from self._fetched(url, fetched, tried))) is not None:
                if _replaced(store, fetched, found):
                    break  # else the one before it may be whole
        if fetched.exists():
            shutil.rmtree(fetched, ignore_errors=True)

    def _fetched(self, url: str, fetched: Path, tried: set[str]) -> "Steps[_Found | None]":
        """Fetch the newest snapshot that fits and was not tried; None if there is none, or the folder is away."""
        try:
            folder: SnapshotFolder = yield partial(SnapshotFolder, url, self._job)
            while len(tried) < TRIES_MAX:
                names: list[str] = yield partial(folder.manifests, self._wiring.name)
                name = next((name for name in names if name not in tried), None)
                if name is None:
                    if not tried:
                        logger.info("no snapshot of the task", extra={"snapshot": folder.place(self._wiring.name)})
                    return None
                tried.add(name)
                found = yield from self._fetch(folder, name, fetched)
                if found is not None:
                    return found
        except (ConfigError, TransientError) as error:
            _tell_unusable({"snapshot": without_password(url)}, error)
        return None

    def _fetch(self, folder: SnapshotFolder, name: str, fetched: Path) -> "Steps[_Found | None]":
        """Fetch one snapshot. Raises TransientError: others will not come either."""
        task = self._wiring.name
        found = _Found({"snapshot": folder.place(task, name)}, time.monotonic())
        try:
            manifest: SnapshotManifest = yield partial(folder.manifest, task, name)
            found.changelog_position = encode_changelog_position(manifest.changelog_position)
            self._check(manifest)
            _check_disk(fetched, manifest)
            found.extra |= {"checkpoint_id": manifest.checkpoint_id, "bytes": manifest.size_bytes}
            logger.info("fetching a snapshot", extra=found.extra)
            make_private(fetched)
            yield partial(folder.fetch, task, manifest, fetched, partial(self._progress, found))
        except (StoreCorrupted, ValueError) as error:
            _tell_unusable(found.extra, error)
            return None
        return found

    def _progress(self, found: "_Found", done: int) -> None:
        if self.given_up:
            raise TransientError("it is not wanted any more")
        self.moves += 1
        found.progress(done)

    def _check(self, manifest: SnapshotManifest) -> None:
        """Raise StoreCorrupted unless this task can go on from the snapshot."""
        wiring, position = self._wiring, manifest.changelog_position
        if (manifest.job, manifest.task) != (self._job, wiring.name):
            raise StoreCorrupted(f"it is of task {manifest.task} of job {manifest.job!r}")
        if manifest.fingerprint not in wiring.fingerprints:
            raise StoreCorrupted("it was taken with other stages, or another number of partitions")
        for store, name in manifest.stores.items():
            if self._stores.get(store, name) != name:
                raise StoreCorrupted(f"it has store {store} as {name!r}, the job has {self._stores[store]!r}")
        start, _ = self._log.bounds(wiring.changelog)
        if position.offset < start:
            raise StoreCorrupted(
                f"{wiring.changelog} begins at {start} now, and the commit of the snapshot was at {position.offset}: "
                "take snapshots more often than changelog_retention_ms"
            )
        check_commit(self._log, wiring.changelog, position)


class _Found:
    """A snapshot on its way, as log lines have it; ``changelog_position``: of its files."""

    def __init__(self, extra: dict[str, object], began: float) -> None:
        self.extra, self.began = extra, began
        self.changelog_position = b""
        self._due = began + _TELL_S

    def progress(self, done: int) -> None:
        """Log now and then how many bytes are there."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _TELL_S
            logger.info("fetching a snapshot", extra=self.extra | {"fetched_bytes": done})


def _tell_unusable(extra: dict[str, object], error: Exception) -> None:
    logger.warning("snapshot cannot be used", extra=extra | {"error": str(error)})


def _replaced(store: RocksStore, fetched: Path, found: _Found) -> bool:
    """Put what was fetched in the place of a store; False: RocksDB refuses it, and the store is empty."""
    try:
        store.replace(fetched, found.changelog_position)
    except (StoreCorrupted, ConfigError) as error:
        store.wipe()
        _tell_unusable(found.extra, error)
        return False
    seconds = round(time.monotonic() - found.began, 2)
    logger.info("state taken from a snapshot", extra=found.extra | {"seconds": seconds})
    return True


def _check_disk(fetched: Path, manifest: SnapshotManifest) -> None:
    """Raise TransientError if there is no room; what is fetched already counts as well, but it is the safe side."""
    free = shutil.disk_usage(fetched.parent).free
    if free < manifest.size_bytes:
        raise TransientError(f"it has {manifest.size_bytes:,} bytes, and {fetched.parent} has {free:,} left")
