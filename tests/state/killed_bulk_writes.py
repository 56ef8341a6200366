"""Does one bulk write over and over, each time in a process that is killed before its next durable append: a script.

killed_bulk_writes.py TEMPLATE DIRECTORY: copies the log of TEMPLATE to DIRECTORY/1, 2, … and prints each once its bulk
write is over.
"""

import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.state.write.bulk.bulk_write import begin, commit
from grete.state.write.bulk.bulk_write_attempt import Attempt
from tests.state.pair_job import job


class Deadly(EmbeddedLog):
    """Kills this process instead of its n-th durable append."""

    left = 0

    def send(
        self,
        owner: int,
        token: int,
        partition: TopicPartition,
        value: bytes,
        *,
        fence: int | None = None,
        sync: bool = False,
        outputs: Sequence[ExternalRecord] = (),
    ) -> None:
        """Count."""
        self.left -= sync
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)
        super().send(owner, token, partition, value, fence=fence, sync=sync, outputs=outputs)


def rewrite(directory: Path, kill_before: int, value: int) -> None:
    """Give all tasks one entry."""
    log = Deadly(directory / "log.db")
    log.left = kill_before
    bulk_write = begin(log, job, Settings())
    written = []
    for task in range(len(bulk_write.tasks)):
        attempt = Attempt(log, bulk_write, task, 1, (10,))
        attempt.add([10], [b"key"], [value.to_bytes(8, "big")])
        written.append(attempt.close())
    commit(log, bulk_write, written, settings=Settings(), full=True)
    log.close()


def main(template: Path, directory: Path) -> None:
    """Until a bulk write is over before it is killed."""
    for kill_before in range(1, 100):
        copy = directory / str(kill_before)
        shutil.copytree(template, copy)
        child = os.fork()
        if child == 0:
            rewrite(copy, kill_before, 2)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(kill_before, "killed" if os.WIFSIGNALED(status) else os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201  # who waits reads it
        if not os.WIFSIGNALED(status):
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
