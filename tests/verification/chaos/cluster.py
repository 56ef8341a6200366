"""Kafka brokers from their jars that a test may kill, freeze and start again: one, or three that replicate."""

import base64
import functools
import gc
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from grete.spark.java import find_java
from grete.testing.broker.jars import SHORT_LIVED, SMALL, classes_file, find_jars, with_classes
from grete.testing.broker.settings import KAFKA, answers, free_port, settings

CLUSTER = "Z3JldGUtY2hhb3MtYnJva2Vycw"  # any 16 bytes
# A dead broker is noticed after 2 s rather than 9 s: its controller refuses the one that comes back until then.
NOTICED_SOON = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}


class Cluster:
    """``brokers`` brokers, each a controller, too. With three, topics have three replicas, two of them in sync."""

    def __init__(
        self,
        directory: Path,
        brokers: int = 1,
        changed: dict[str, str] | None = None,
        *,
        behind: Sequence[int] = (),
        host: str = "127.0.0.1",
        version: str = KAFKA,
    ) -> None:
        """Format and start them. ``changed``: broker settings beside ours. Raises ConfigError: no Java, no jars.

        ``behind``: for each broker the port of a proxy to its ``outside`` port; who comes by it is sent there again.
        ``host``: the address at which clients reach them.
        """
        self._directory, self._host, self._jars = directory, host, find_jars(version)
        self._behind, self.outside = behind, [free_port() for _ in behind]
        self._ports = [(free_port(), free_port()) for _ in range(brokers)]
        self.bootstrap = ",".join(f"{host}:{port}" for port, _ in self._ports)
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * brokers
        for number in range(brokers):
            format_storage(directory / f"broker-{number}", number + 1, self._jars)
            self._config(number).write_text(_lines(self._settings(number) | (changed or {})))
        try:
            for number in range(brokers):
                self._launch(number)
            for number in range(brokers):
                self._answers(number)
        except BaseException:
            self.close()
            raise

    def kill(self, number: int) -> None:
        """End a broker by SIGKILL."""
        process = self._process(number)
        process.kill()
        process.wait()
        self._processes[number] = None

    def start(self, number: int) -> None:
        """Start a broker again, with the data that it has; return when it answers."""
        self._launch(number)
        self._answers(number)

    def freeze(self, number: int) -> None:
        """Stop a broker by SIGSTOP: its connections stay open, and nothing answers."""
        self._process(number).send_signal(signal.SIGSTOP)

    def thaw(self, number: int) -> None:
        """Let a frozen broker go on."""
        self._process(number).send_signal(signal.SIGCONT)

    def pids(self) -> list[int]:
        """Return the processes of the brokers that run."""
        return [process.pid for process in self._processes if process is not None]

    def close(self) -> None:
        """End all."""
        gc.collect()  # clients of logs that were closed: they would ask dead brokers each second, and tell of it
        for process in self._processes:
            if process is not None:
                process.kill()
                process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _process(self, number: int) -> "subprocess.Popen[bytes]":
        process = self._processes[number]
        assert process is not None, f"broker {number} does not run"
        return process

    def _launch(self, number: int) -> None:
        with (self._directory / f"broker-{number}.log").open("ab") as log:
            self._processes[number] = subprocess.Popen(
                _command(self._jars, "kafka.Kafka", str(self._config(number))),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _answers(self, number: int) -> None:
        answers(f"{self._host}:{self._ports[number][0]}", alive=lambda: self._process(number).poll() is None)

    def _config(self, number: int) -> Path:
        return self._directory / f"broker-{number}.properties"

    def _settings(self, number: int) -> dict[str, str]:
        port, control = self._ports[number]
        voters = ",".join(f"{i + 1}@127.0.0.1:{ports[1]}" for i, ports in enumerate(self._ports))
        own = {
            "node.id": str(number + 1),
            "listeners": f"PLAINTEXT://{self._host}:{port},CONTROLLER://127.0.0.1:{control}",
            "advertised.listeners": f"PLAINTEXT://{self._host}:{port}",
            "controller.quorum.voters": voters,
            "log.dirs": str(self._directory / f"broker-{number}"),
        }
        if self._behind:
            own["listeners"] += f",OUTSIDE://127.0.0.1:{self.outside[number]}"
            own["advertised.listeners"] += f",OUTSIDE://{self._host}:{self._behind[number]}"
            own["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OUTSIDE:PLAINTEXT"
            own["inter.broker.listener.name"] = "PLAINTEXT"
        if len(self._ports) > 1:
            replicas, least = str(len(self._ports)), "2"
            own |= {
                "default.replication.factor": replicas,
                "min.insync.replicas": least,
                "offsets.topic.replication.factor": replicas,
                "transaction.state.log.replication.factor": replicas,
                "transaction.state.log.min.isr": least,
            } | NOTICED_SOON
        return settings() | SMALL | own


def format_storage(directory: Path, node: int, jars: Path) -> None:
    """Make an empty broker's directory, as Kafka's tool does; the tool runs once in this process."""
    directory.mkdir(parents=True)
    for name, content in _formatted(jars).items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(content)
    own = base64.urlsafe_b64encode(os.urandom(16)).rstrip(b"=").decode()
    path = directory / "meta.properties"
    text = re.sub(r"node\.id=.*", f"node.id={node}", path.read_text())
    path.write_text(re.sub(r"directory\.id=.*", f"directory.id={own}", text))


@functools.cache
def _formatted(jars: Path) -> dict[str, bytes]:
    """Return file → content of a directory that Kafka's tool has formatted."""
    with tempfile.TemporaryDirectory() as name:
        config, data = Path(name) / "server.properties", Path(name) / "data"
        config.write_text(_lines(settings() | {"log.dirs": str(data)}))
        format_it = ["kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(config)]
        subprocess.run(_command(jars, *format_it), check=True, capture_output=True, timeout=60)
        return {str(path.relative_to(data)): path.read_bytes() for path in data.rglob("*") if path.is_file()}


def _command(jars: Path, *arguments: str) -> list[str]:
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    java = find_java()
    own = [*SHORT_LIVED, *with_classes(classes_file(java, jars)), "-Xms128m", "-Xmx512m", quiet]
    return [java, *own, "-cp", str(jars / "*"), *arguments]


def _lines(properties: dict[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in properties.items())
