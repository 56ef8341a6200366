"""Keys of several parts in the wrong partition: each is compared, by the part that places it."""

from pathlib import Path

import pytest

from grete import Input, Job, Key, Record, Store, Task, Topic, int64, utf8
from grete.errors import Halted
from grete.job.directory import JobDirectory
from grete.job.key_check import JobKeys, KeyCheck
from grete.job.key_metadata import pinned
from grete.logs.embedded import EmbeddedLog
from grete.protocol.partitioner import crc32_partition_of, partition_of
from grete.settings import Settings
from tests.execution.test_key_check import BY_MURMUR2, HERE, KEYS, MURMUR2, PARTITIONS, WRONG, read

PLACES = partition_of, crc32_partition_of


class ByPart(Task):
    """An input whose keys have two parts."""

    orders = Input(Topic("orders", key=Key(utf8, int64), value=int64))
    sums = Store("sums", key=utf8, value=int64)

    def process(self, record: Record[tuple[str, int], int]) -> None:
        """Do nothing."""


def test_keys_of_several_parts_are_compared_by_the_part_that_places_them(tmp_path: Path) -> None:
    """Each one, and the first that lies elsewhere halts the task with the part and where it belongs."""
    pair, job = Key(utf8, int64), Job("adding", stages=[ByPart], partitions=PARTITIONS)
    log = EmbeddedLog(tmp_path / "log.db")

    def check() -> KeyCheck:
        found = JobKeys(job, log, JobDirectory(tmp_path), Settings()).check_of(job.stages[0], HERE.partition)
        assert found is not None
        return found

    def keys(*parts: bytes) -> list[bytes]:
        return [pair.encode((part.decode(), number)) for number, part in enumerate(parts)]

    nowhere = next(key for key in KEYS if HERE.partition not in {place(key, PARTITIONS) for place in PLACES})
    with pytest.raises(
        Halted, match=rf"offset 1: the part of its key that places it, b'{nowhere.decode()}' belongs in"
    ):
        read(check(), *keys(BY_MURMUR2[0], nowhere))
    read(check(), *keys(*BY_MURMUR2[:100]))
    assert pinned(log, ["orders"]) == {"orders": MURMUR2}
    pinned_check = check()
    read(pinned_check, *keys(*BY_MURMUR2[:600]), batch=600)
    right = partition_of(WRONG, PARTITIONS)
    with pytest.raises(Halted, match=rf"offset 599: the part of .* b'{WRONG.decode()}' belongs in partition {right}"):
        read(pinned_check, *keys(*BY_MURMUR2[:599], WRONG), batch=600)
    log.close()
