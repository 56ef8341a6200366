"""Applies or migrates one job over and over, each time in a process killed before its next write to the log: a script.

killed_applies.py TEMPLATE DIRECTORY CODE apply: copies the job of TEMPLATE to DIRECTORY/1, 2, … and prints each at its
end; with ``migrate`` instead it calls that.
"""

import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from grete.cli.commands.apply import apply
from grete.cli.commands.migrate import migrate
from grete.cli.job_target import NamedJob
from grete.logs.address import IN_DIRECTORY
from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.settings import Settings


class Deadly:
    """Kills this process instead of its n-th write, or right behind it."""

    def __init__(self, left: int) -> None:
        self._left = left
        self._send, self._produce = EmbeddedLog.send, EmbeddedLog.produce_with_meta
        EmbeddedLog.send = self._counted_send  # type: ignore[assignment]  # it counts, too
        EmbeddedLog.produce_with_meta = self._counted_produce  # type: ignore[assignment]  # it counts, too

    def _count(self) -> None:
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)

    @property
    def _counted_send(self) -> object:
        def send(
            log: EmbeddedLog,
            owner: int,
            token: int,
            partition: TopicPartition,
            value: bytes,
            *,
            fence: int | None = None,
            sync: bool = False,
            outputs: Sequence[ExternalRecord] = (),
        ) -> None:
            self._count()
            self._send(log, owner, token, partition, value, fence=fence, sync=sync, outputs=outputs)

        return send

    @property
    def _counted_produce(self) -> object:
        def produce(
            log: EmbeddedLog,
            records: Sequence[ExternalRecord],
            meta: Mapping[str, bytes | None],
            *,
            sync: bool = False,
        ) -> int:
            self._count()
            found = self._produce(log, records, meta, sync=sync)
            self._count()
            return found

        return produce


def main(template: Path, directory: Path, reference: str, command: str) -> None:
    """Until a command is over before it is killed."""
    for kill_before in range(1, 200):
        copy = directory / str(kill_before)
        shutil.copytree(template, copy)
        child = os.fork()
        if child == 0:
            Deadly(kill_before)
            if command == "apply":
                apply(NamedJob(reference, copy, IN_DIRECTORY, Settings))
            else:
                migrate(NamedJob(reference, copy, IN_DIRECTORY, Settings))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(kill_before, "killed" if os.WIFSIGNALED(status) else os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201  # who waits reads it
        if not os.WIFSIGNALED(status):
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
