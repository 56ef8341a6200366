"""A rescale on a Spark cluster: an executor is killed as it writes, an attempt that has lost writes on afterwards."""

import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from grete.logs.embedded import EmbeddedLog
from grete.protocol.changelog import ChangelogHeader, ChangelogType, decode_changelog_header
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.spark.format.options import LogSpec
from grete.spark.moving.spark_mover import SparkMover
from grete.spark.moving.write import WritePlan
from grete.state.write.rescale import rescale
from tests.spark.backfill.scene import Silent
from tests.spark.troubles import LIMIT_S, kill_executor
from tests.state.pair_job import job

PARTITIONS = 4
LATE, KILLED = PARTITIONS + 0, PARTITIONS + 1  # tasks (1, 0) and (1, 1)
MIDDLE = 70  # rows of a task, of about 100: by then 64 are in the log


def changelog_of(task: int) -> TopicPartition:
    """Return the changelog of a task of the second stage."""
    return TopicPartition("pair.count.changelog", task - PARTITIONS)


def headers_in(directory: Path, task: int) -> list[ChangelogHeader]:
    """Return the headers of all messages in a task's changelog."""
    log = EmbeddedLog(directory / "log.db")
    begin, end = log.bounds(changelog_of(task))
    headers = [decode_changelog_header(row.value or b"") for row in log.read(changelog_of(task), begin, 1 << 24)]
    log.close()
    return headers if end else []


def wait_for(directory: Path, task: int, enough: Callable[[ChangelogHeader], bool]) -> None:
    """Return once there is such a message in a task's changelog."""
    end_s = time.monotonic() + LIMIT_S
    while not any(map(enough, headers_in(directory, task))):
        assert time.monotonic() < end_s, "this attempt waits for a message that does not come"
        time.sleep(0.05)


def own(number: int) -> Callable[[ChangelogHeader], bool]:
    """Return a predicate for the data of an attempt."""
    return lambda header: header.type is ChangelogType.DATA and header.attempt == number


class Troubled(SparkMover):
    """The writer of one task is killed with its executor once; the first one of another task goes on behind the end."""

    def writer(self, plan: WritePlan) -> Callable[[Iterable[Any]], Iterator[Any]]:
        """Return the writer, with that."""
        write, directory = super().writer(plan), self._into.directory

        def troubled(batches: Iterable[Any]) -> Iterator[Any]:
            context = TaskContext.get()
            assert context is not None
            task, number = context.partitionId(), int(context.taskAttemptId()) + 1
            if task == KILLED:
                yield from write(dying(directory, number, batches))
            elif task == LATE and is_first(directory / "late"):
                done = [*write(late(directory, plan.bulk_write.tasks[LATE].generation, [*batches]))]
                (directory / "late").write_text(str(number))
                yield from done
            else:
                yield from write(batches)

        return troubled


def is_first(file: Path) -> bool:
    """Tell whether no other process has come here before."""
    try:
        file.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def dying(directory: Path, number: int, batches: Iterable[Any]) -> Iterator[Any]:
    """Yield the rows; in their middle the executor is killed, once."""
    for at, batch in enumerate(batches):
        if at == MIDDLE and not (directory / "killed").exists():
            wait_for(directory, KILLED, own(number))
            kill_executor(directory / "killed")
        yield batch


def late(directory: Path, generation: int, batches: list[Any]) -> Iterator[Any]:
    """Yield half of the rows, the others once the task has been committed."""
    yield from batches[:MIDDLE]
    wait_for(directory, LATE, lambda header: header[:2] == (ChangelogType.COMMIT, generation))
    yield from batches[MIDDLE:]


def move(url: str, directory: Path, first: Path) -> None:
    """Rescale a copy of a job that Spark has written from two partitions to four."""
    shutil.copytree(first, directory)
    where = LogSpec("embedded", "", str(directory / "log.db"))
    log = EmbeddedLog(directory / "log.db")
    with Troubled(url, where, where, None, Silent()) as mover:
        rescale(log, job, PARTITIONS, Settings(), own_topics=True, mover=mover)
        end_s = time.monotonic() + LIMIT_S
        while not (directory / "late").read_text():
            assert time.monotonic() < end_s, "the attempt that was too late does not end"
            time.sleep(0.05)
    log.close()
