"""The state store in production: one RocksDB a task, one column family a store."""

import contextlib
import shutil
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rocksdict import DbClosedError, Options, Rdict, RdictIter, ReadOptions, WriteBatch

from grete.errors import ConfigError, FrameworkError, StoreCorrupted, TransientError
from grete.ports import Write
from grete.protocol.ids import check_name
from grete.stores.memory import check_same_name, unknown_store
from grete.stores.rocksdb.manifest import check_manifest
from grete.stores.rocksdb.memory_use import RocksMemory
from grete.stores.rocksdb.sst_ingest import BulkLoad, hand_over
from grete.stores.store_directory import StoreDirectory

CHANGELOG_POSITION = b"pointer"  # key in the default column family
_LOADING = "load.part"  # a file on its way into RocksDB
_TRANSIENT = (
    "No space left",
    "quota exceeded",
    "Too many open files",
    "File too large",
    "Input/output error",
    "lock hold by",
)
_LOAD_BYTES_MAX = 32 << 20  # of one task during a restore, on top of the budget; smaller means more, smaller files


class RocksStore:
    """ports.StateStore on RocksDB.

    The changelog position is in the default column family, in a batch with the data it covers.
    """

    def __init__(
        self, directory: Path, stores: Mapping[int, str], memory: RocksMemory, dropped: Collection[int] = ()
    ) -> None:
        """Open or make the store. Store ids may be added at any start; those on disk and not named stay as they are.

        ``dropped``: store ids that are no more: they are deleted, and what is written to them is passed over.
        Raises TransientError if another process has it open, ConfigError if the directory cannot be used or a store id
        had another name, StoreCorrupted if RocksDB cannot read it (then ``directory.wipe_directory`` and open again).
        """
        for name in stores.values():
            check_name("store", name.removeprefix("_"))  # the runtime's own stores begin with it
        self._names, self._dropped = dict(stores), frozenset(dropped)
        self._memory = memory
        self._loads: dict[int, BulkLoad] = {}  # by store id; in RocksDB after the next flush
        self._scans: weakref.WeakSet[_Scan] = weakref.WeakSet()
        self._directory = StoreDirectory(directory)
        try:
            self._open()
        except BaseException:
            self._directory.close()
            raise

    def _open(self) -> None:
        path = self._directory.path
        options = self._memory.options()
        families = {_family(store, name): self._memory.options() for store, name in self._names.items()}
        try:
            on_disk = self._families_on_disk(path)
            # All must be opened, and with these options: RocksDB would take its defaults for those left out.
            families |= {family: self._memory.options() for family in on_disk}
            self._db = Rdict(str(path), options, column_families=families)
            for family in on_disk:
                if int(family.partition(".")[0]) in self._dropped:
                    self._db.drop_column_family(family)
        except FrameworkError:
            raise
        except Exception as error:
            raise self._failure("open", error) from error
        self._stores = {store: self._db.get_column_family(_family(store, name)) for store, name in self._names.items()}
        self._handles = {
            store: self._db.get_column_family_handle(_family(store, name)) for store, name in self._names.items()
        }
        self._closed = False

    def _families_on_disk(self, path: Path) -> list[str]:
        if not (path / "CURRENT").exists():
            if any(path.glob("*.sst")) or any(path.glob("MANIFEST-*")):
                raise StoreCorrupted(f"{path} has data but no CURRENT file: wipe it and restore")
            return []
        check_manifest(path)
        families = sorted(set(Rdict.list_cf(str(path), Options(raw_mode=True))) - {"default"})
        for family in families:
            number, _, name = family.partition(".")
            if not number.isdecimal():
                raise ConfigError(f"{path} is a RocksDB of another program (column family {family!r}): choose another")
            if int(number) in self._names:
                check_same_name(int(number), name, self._names[int(number)])
        return families

    def changelog_position(self) -> bytes | None:
        """Return the changelog position written last, or None. Raises StoreCorrupted."""
        try:
            return self._db.get(CHANGELOG_POSITION)
        except Exception as error:
            raise self._failure("read the changelog position of", error) from error

    def get(self, store: int, key: bytes) -> bytes | None:
        """Return the value or None. Raises StoreCorrupted; ConfigError for an unknown store id."""
        if self._loads:
            self.flush()
        try:
            return self._stores[store].get(key)
        except Exception as error:
            raise self._failure("read", error, store) from error

    def get_many(self, store: int, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values, by one call of RocksDB's multi-get. Raises as ``get`` does."""
        if self._loads:
            self.flush()
        try:
            found: Any = self._stores[store].get(list(keys))
        except Exception as error:
            raise self._failure("read", error, store) from error
        return [*found]

    def scan(
        self, store: int, start: bytes, end: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value), start <= key < end, in key order (``reverse``: from the last on), as of the call.

        Raises StoreCorrupted, also midway.
        """
        if store in self._dropped:
            return iter(())
        if self._loads:
            self.flush()
        options = ReadOptions()
        if end is not None:
            options.set_iterate_upper_bound(end)
        try:
            iterator = self._stores[store].iter(options)
            if reverse:
                iterator.seek_to_last()
            else:
                iterator.seek(start)
        except Exception as error:
            raise self._failure("scan", error, store) from error
        scan = _Scan(iterator, options)
        self._scans.add(scan)
        return self._rows(scan, store, down_to=start if reverse else None)

    def last_key(self, store: int) -> bytes | None:
        """Return the last key in key order, or None. Raises StoreCorrupted."""
        if self._loads:
            self.flush()
        try:
            iterator = self._stores[store].iter(ReadOptions())
            iterator.seek_to_last()
            iterator.status()  # an empty store, or a block that cannot be read: only the status tells
            last: bytes | None = iterator.key() if iterator.valid() else None
        except Exception as error:
            raise self._failure("scan", error, store) from error
        return last

    def _rows(self, scan: "_Scan", store: int, *, down_to: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Yield rows, in reverse with ``down_to``: rocksdict frees the bytes of a lower bound while RocksDB has it."""
        while (iterator := scan.iterator) is not None:
            try:
                if not iterator.valid():
                    iterator.status()  # the end, or a block that cannot be read: only the status tells
                    return
                row = iterator.key(), iterator.value()
                if down_to is None:
                    iterator.next()
                elif row[0] < down_to:
                    return
                else:
                    iterator.prev()
            except Exception as error:
                raise self._failure("scan", error, store) from error
            del iterator  # or a suspended scan would keep the database open after close
            yield row
        raise FrameworkError(f"a scan of store {store} in {self._directory.path} outlived it: scan again")

    def write(self, writes: Iterable[Write], changelog_position: bytes | None = None) -> None:
        """Apply all writes and the changelog position atomically.

        Raises TransientError if the disk is full, ConfigError for an unknown store id; nothing is written then.
        """
        if self._loads:
            self.flush()
        batch = WriteBatch(raw_mode=True)
        put, delete, handle_of = batch.put, batch.delete, self._handles.get
        for store, key, value in writes:
            handle = handle_of(store)
            if handle is None:
                if store in self._dropped:
                    continue
                raise self._failure("write", KeyError(store))
            if value is None:
                delete(key, handle)
            else:
                put(key, value, handle)
        if changelog_position is not None:
            put(CHANGELOG_POSITION, changelog_position)
        try:
            self._db.write(batch)
        except Exception as error:
            raise self._failure("write", error) from error

    def load(self, store: int, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Apply one data message's columns to one store, in memory up to a bound (see ``flush``).

        Raises ConfigError for an unknown store id, TransientError if the disk is full, ValueError for columns of
        different lengths.
        """
        if store in self._dropped:
            return
        if store not in self._handles:
            raise self._failure("load", KeyError(store))
        self._loads.setdefault(store, BulkLoad()).add(keys, values)
        if sum(load.size_bytes for load in self._loads.values()) > _LOAD_BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        """Make what was loaded survive a kill.

        Reads and ``write`` do it first, so no changelog position covers what is not there.

        It does not survive before: a restore that is interrupted starts over, from the same changelog position or
        from none, so logging it would be wasted. Raises TransientError if the disk is full.
        """
        try:
            for store in list(self._loads):
                self._loads[store].ingest(self._stores[store], self._memory.options(), self._directory.path / _LOADING)
                del self._loads[store]
        except Exception as error:
            raise self._failure("load", error) from error

    def ingest(self, files: Sequence[tuple[int, Path]], changelog_position: bytes) -> None:
        """Take (store id, SST file) instead of all that is there, then the changelog position.

        The files stay where they are.

        Files of one store must not overlap. Raises TransientError if the disk is full; ConfigError for an unknown store
        id; StoreCorrupted if RocksDB refuses a file: the store is empty then, or has no changelog position.
        """
        for store, _ in files:
            if store not in self._handles:
                raise self._failure("ingest into", KeyError(store))
        self.wipe()
        try:
            for number, (store, file) in enumerate(files):
                own = self._directory.path / f"{_LOADING}-{number}"
                _link(file, own)
                hand_over(self._stores[store], own)
        except Exception as error:
            raise self._failure("ingest into", error) from error
        self.write((), changelog_position)

    def replace(self, directory: Path, changelog_position: bytes) -> None:
        """Take the whole database in ``directory``, which is gone then, instead of all that is there.

        Raises StoreCorrupted, or ConfigError for a store id with another name, if it cannot be opened or is not the
        state of ``changelog_position``: only ``wipe`` and ``close`` are allowed then.
        """
        self._close_database()
        self._directory.replace(directory)
        self._open()
        found = self.changelog_position()
        if found != changelog_position:
            raise StoreCorrupted(f"{directory} has the changelog position {found!r}, not {changelog_position!r}")

    def wipe(self) -> None:
        """Empty all stores and the changelog position.

        It closes, renames the directory, deletes it and opens a new one, all under the lock.
        """
        self._close_database()
        self._directory.wipe()
        self._open()

    def close(self) -> None:
        """Release the database and the lock; running scans end with an error. A second close does nothing."""
        self._close_database()
        self._directory.close()

    def _close_database(self) -> None:
        if self._closed:
            return
        for scan in list(self._scans):
            scan.iterator = None
        self._handles.clear()
        for database in (*self._stores.values(), self._db):  # each is flushed: the changelog position's family last
            # After a failed write RocksDB complains once more; every write that succeeded is in its log.
            with contextlib.suppress(Exception):
                database.close()
        self._loads.clear()
        self._closed = True

    def _failure(self, what: str, error: Exception, store: int | None = None) -> FrameworkError:
        """Return the error that says what to do about one of rocksdict's, which all have one class."""
        text = str(error)
        where = (
            f"cannot {what} {self._directory.path}" + (f", store {store}" if store is not None else "") + f": {text}"
        )
        if isinstance(error, KeyError) and not self._closed:
            return unknown_store(error.args[0], self._names)
        if isinstance(error, DbClosedError | KeyError):
            return FrameworkError(f"{where}: it was closed")
        if isinstance(error, TypeError):
            return ConfigError(f"{where}: keys and values must be bytes")
        if any(words in text for words in _TRANSIENT):
            return TransientError(f"{where}: free the disk, raise ulimit -n, or end its owner, and start again")
        if any(words in text for words in ("Permission denied", "Read-only file system")):
            return ConfigError(f"{where}: this process must be able to write there")
        return StoreCorrupted(f"{where}: wipe it and restore")


class _Scan:
    """Holds the iterator of one scan, so that close can take it away.

    It holds its options, too: RocksDB only points to the bytes of the bound, which rocksdict frees with the options.
    Without them a scan ended early, or went on beyond its end.
    """

    __slots__ = ("__weakref__", "iterator", "options")

    def __init__(self, iterator: RdictIter, options: ReadOptions) -> None:
        self.iterator: RdictIter | None = iterator
        self.options = options


def _link(file: Path, own: Path) -> None:
    """Give a file a second name: another disk, or file system, gets a copy."""
    try:
        own.hardlink_to(file)
    except OSError:
        shutil.copyfile(file, own)


def _family(store: int, name: str) -> str:
    return f"{store}.{name}"
