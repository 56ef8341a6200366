"""A Spark cluster of real processes on this machine: a master, and two workers that start an executor each.

Local mode makes no second attempts of what is slow, and its executor cannot die without the driver. Each worker has an
address of its own, as Spark starts the twin of an attempt only on another host.
"""

import os
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from grete.spark.java import find_java
from grete.spark.session import java_home
from grete.testing.broker.settings import free_port
from tests.spark.kept_classes import JAVA

LIMIT_S = 120


class SparkCluster:
    """Its ``url`` is what a session names as its master."""

    def __init__(self, directory: Path) -> None:
        """Start nothing yet; the processes write below ``directory``."""
        self._directory, self._port = directory, free_port()
        self.url = f"spark://127.0.0.1:{self._port}"
        self._java = java_home(find_java(), directory / "java")
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self._start("master.Master", "--host", "127.0.0.1", "--port", str(self._port))
        end_s = time.monotonic() + LIMIT_S
        while not self._answers():
            assert time.monotonic() < end_s, "the master does not answer"
            assert self._processes[0].poll() is None, "the master has ended"
            time.sleep(0.1)
        for number in (2, 3):
            more = "--cores", "1", "--memory", "1g", "--work-dir", str(self._directory / f"worker-{number}")
            self._start("worker.Worker", "--host", f"127.0.0.{number}", *more, self.url)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all processes."""
        for process in reversed(self._processes):
            process.terminate()
            process.wait()

    def _start(self, name: str, *arguments: str) -> None:
        home = Path(pyspark.__file__).parent
        env = os.environ | {
            "JAVA_HOME": str(self._java),
            "SPARK_DAEMON_JAVA_OPTS": JAVA,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_HOME": str(home),
        }
        command = [
            str(home / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{name}",
            "--webui-port",
            "0",
            *arguments,
        ]
        with (self._directory / "cluster.log").open("ab") as log:
            self._processes.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), 1).close()
        except OSError:
            return False
        return True
