"""One worker of the shared-channel experiment: ``… -m benchmarks.shared_channel_worker LOG DIRECTORY PARTITION K=V …``.

Its log counts what the worker reads of the shared stream: bytes, bytes that it had read before, and the order in which
records of different checkpoints came. It says "running" on its standard output when it takes input; when its standard
input ends, it stops and writes one JSON object.
"""

import json
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, cast

from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import IN_DIRECTORY, KAFKA, LogAddress
from grete.ports import JobLog, Log, LogRow
from grete.protocol.envelope import MessageType, decode_header
from grete.protocol.frames import frame_count
from grete.protocol.ids import TopicPartition
from grete.protocol.report import WorkerReport
from grete.settings import Settings, with_texts
from grete.worker.process.worker import OpenedLog, Worker


class CountingLog:
    """A log, and what was read of the partitions of one stream through it.

    ``late``: records that came behind one of a later checkpoint. Solution 4 processes them twice.
    """

    def __init__(self, log: Log, stream: str) -> None:
        """Count what is read of topics whose name has ``stream`` in it."""
        self._log, self._stream = log, stream
        self.bytes = self.bytes_again = self.records = self.late = 0
        self.markers: dict[tuple[TopicPartition, int], list[float]] = {}
        self._next: dict[TopicPartition, int] = {}
        self._highest: dict[TopicPartition, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def read(self, partition: TopicPartition, offset: int, max_bytes: int) -> list[LogRow]:
        """Read as the log does; count."""
        rows = self._log.read(partition, offset, max_bytes)
        if self._stream in partition.topic:
            for row in rows:
                self._take(partition, row)
        return rows

    def _take(self, partition: TopicPartition, row: LogRow) -> None:
        value = row.value or b""
        self.bytes += len(value)
        if row.offset < self._next.get(partition, 0):
            self.bytes_again += len(value)
            return
        self._next[partition] = row.offset + 1
        header = decode_header(value)
        if header.type is MessageType.MARKER:
            self.markers.setdefault((partition, header.checkpoint_id), []).append(time.monotonic())
        if header.type is not MessageType.FRAME:
            return
        count, highest = frame_count(value), self._highest.get(partition, 0)
        self.records += count
        self.late += count if header.checkpoint_id < highest else 0
        self._highest[partition] = max(highest, header.checkpoint_id)


def main(address: str, directory: Path, partition: int, pairs: dict[str, str]) -> None:
    """Run the worker until the standard input ends."""
    place = LogAddress(address) if address.startswith(KAFKA) else IN_DIRECTORY
    job_directory = JobDirectory(directory, address=place)
    log = CountingLog(job_directory.open_log(), ".words.")
    job = load_job(str(Path(__file__).with_name("shared_channel.py")))
    worker = Worker(job, [partition], OpenedLog(cast(JobLog, log)), job_directory, with_texts(Settings(), pairs))
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    said = False

    def report(_: WorkerReport) -> None:
        nonlocal said
        if not said and all(driver.running for driver in worker.drivers):
            said = True
            print("running", flush=True)
        if ended.is_set():
            worker.stop()

    worker.reports.send = report
    worker.run()
    seen = sum((Counter(driver.core.seen) for driver in worker.drivers), Counter[str]())
    spread = [max(times) - min(times) for times in log.markers.values() if len(times) > 1]
    found = {
        "spread_s": spread,
        "bytes": log.bytes,
        "bytes_again": log.bytes_again,
        "records": log.records,
        "late": log.late,
    }
    print(json.dumps({**found, "seen": seen, "cpu_s": time.process_time()}), flush=True)


if __name__ == "__main__":
    settings = dict(argument.split("=", 1) for argument in sys.argv[4:])
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), settings)
