"""The first start after a backfill: a store takes the files that it built, if the log confirms their commit (0017)."""

import logging
from collections.abc import Mapping
from pathlib import Path

from grete.errors import StoreCorrupted
from grete.logs.partition_reader import rows
from grete.ports import LogReader
from grete.protocol.changelog import ChangelogType, decode_changelog_header
from grete.protocol.changelog_position import ChangelogPosition, decode_changelog_position, encode_changelog_position
from grete.protocol.commit import decode_commit
from grete.protocol.errors import DecodeError
from grete.protocol.ids import TopicPartition
from grete.stores.rocksdb.sst_snapshot import Prebuilt, remove
from grete.stores.rocksdb.store import RocksStore

logger = logging.getLogger("grete")


def take_prebuilt(
    directory: Path, store: RocksStore, stores: Mapping[int, str], log: LogReader, changelog: TopicPartition
) -> None:
    """Fill a store that is behind them from the files in ``directory``, and delete them; log the result.

    Whatever is wrong with them, the store is left as it is, or empty: the task's start reads the changelog then (R1).
    Raises TransientError: the disk is full, or the log does not answer.
    """
    if not directory.is_dir():
        return
    where = {"directory": str(directory)}
    try:
        built = Prebuilt(directory, stores)
        own = store.changelog_position()
        if own is None or decode_changelog_position(own).offset < built.changelog_position.offset:
            check_commit(log, changelog, built.changelog_position)
            store.ingest(list(built.files()), encode_changelog_position(built.changelog_position))
            logger.info("state taken from files of a backfill", extra=where)
    except StoreCorrupted as error:
        logger.warning("files of a backfill cannot be used, reading the changelog", extra=where | {"error": str(error)})
    remove(directory)


def check_commit(log: LogReader, changelog: TopicPartition, changelog_position: ChangelogPosition) -> None:
    """Raise StoreCorrupted unless the changelog holds the commit: else the start would take its log for a short one."""
    start, end = log.bounds(changelog)
    inside = start <= changelog_position.offset < end
    row = next(rows(log, changelog, changelog_position.offset, changelog_position.offset + 1), None) if inside else None
    try:
        if row is not None and row.offset == changelog_position.offset:
            value = row.value or b""
            if decode_changelog_header(value).type is ChangelogType.COMMIT:
                commit = decode_commit(value)
                if (commit.generation, commit.checkpoint_id, commit.nonce) == changelog_position[1:]:
                    return
    except DecodeError:
        pass  # the start will say it
    raise StoreCorrupted(
        f"{changelog}, which has offsets {start} to {end}, has no commit of checkpoint "
        f"{changelog_position.checkpoint_id} at {changelog_position.offset}: they are of another log, or out of date",
        partition=changelog,
        checkpoint_id=changelog_position.checkpoint_id,
    )
