"""A program that writes numbers through a Writer, to be killed; the log is away while a file says so.

``python -m tests.client.spooling FOLDER FIRST LAST [LOG]``: prints each number that is in the spool, then "flushed".
"""

import sys
from pathlib import Path

from grete import BySequence, Input, Job, Record, Store, Task, Topic, int64, utf8
from grete.clients import Writer
from grete.errors import LogAway
from grete.job.directory import JobDirectory
from grete.logs.patience import Patience
from grete.ports import JobLog, LogRow
from grete.protocol.frames import decode_headers
from grete.testing import Kit

NUMBERS = Topic("numbers", key=utf8, value=int64)


class Count(Task):
    """Counts each number that is new."""

    numbers = Input(NUMBERS, deduplicate=BySequence.from_headers(3_600_000))
    seen = Store("seen", key=utf8, value=int64)

    def process(self, record: Record[str, int]) -> None:
        """Count it."""
        self.seen.put(str(record.value), self.seen.get(str(record.value), 0) + 1)


job = Job("spooled", [Count], partitions=2)


def counted(rows: dict[int, list[LogRow]]) -> dict[str, int]:
    """Return the count of each number in a job that drops duplicates."""
    kit = Kit(job)
    for partition, each in rows.items():
        for row in each:
            kit.feed(
                NUMBERS,
                (row.key or b"").decode(),
                int.from_bytes(row.value or b"", signed=True),
                headers=decode_headers(row.headers or b""),
                partition=partition,
                timestamp=row.timestamp_ms,
            )
    kit.run()
    return kit.state(Count.seen)


def main(folder: Path, first: int, last: int, log: str = "embedded") -> None:
    """Write the numbers and wait for the log."""
    opened = JobDirectory.open_log

    def open_log(self: JobDirectory, *, patience: Patience | None = None) -> JobLog:
        if (folder / "away").exists():
            raise LogAway("it is away")
        return opened(self, patience=patience)

    JobDirectory.open_log = open_log  # type: ignore[assignment]  # a part of its arguments
    with Writer(job, NUMBERS, log=log, directory=folder / "job") as writer:
        for number in range(first, last):
            writer.send(f"k{number % 7}", number)
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()
        writer.flush()
        sys.stdout.write("flushed\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
