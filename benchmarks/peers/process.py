"""A peer's job of the latency experiment: one process."""

import subprocess
import time
from pathlib import Path

from benchmarks.latency.workers import cpu_s
from benchmarks.peers.tools import Peer
from benchmarks.running import tree

CLOSE_S_MAX = 10.0
TAIL = 4_000  # characters of a log


class Process:
    """The process of a peer's job. It ends with us, however we end: its standard input does."""

    def __init__(
        self, bootstrap: str, peer: Peer, interval_ms: int, partitions: int, topics: tuple[str, str], directory: Path
    ) -> None:
        """``topics``: of documents, of changes; they are there. ``directory``: of its state, it is made."""
        directory.mkdir()
        name = topics[1].replace("changes", "peer")
        arguments = [bootstrap, *topics, name, str(directory), peer.guarantee, str(interval_ms), str(partitions)]
        arguments += peer.options
        self._log = directory / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*peer.tool.command("Index"), *arguments], stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=directory
            )

    def started(self) -> bool:
        """Return True: a peer does not say; its first documents will tell."""
        return True

    def supervise(self, until_s: float) -> None:
        """Wait until a time. Raises SystemExit if the process has ended."""
        time.sleep(max(0.0, until_s - time.monotonic()))
        if self._process.poll() is not None:
            raise SystemExit(f"the peer ended: the run does not count\n{self.last_words()}")

    def cpu_s(self) -> float:
        """Return the CPU time of the process and of those that it has started: Spark's is Java's."""
        return cpu_s(tree(self._process.pid))

    def kill(self, partition: int) -> None:
        """Raise SystemExit: no process would start it again."""
        raise SystemExit("peers are not killed: kills is for Grete's modes")

    def last_words(self) -> str:
        """Return the end of the log."""
        return self._log.read_text(errors="replace")[-TAIL:]

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        try:
            self._process.wait(CLOSE_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
