"""A broker for tests ends with the last process that uses it, and is shared by all that want it."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

import pytest

from grete.errors import ConfigError
from grete.settings import Settings, from_environment
from grete.testing.broker import NoBroker, find_broker, jars
from grete.testing.broker.docker import docker_broker
from grete.testing.broker.find import READY
from grete.testing.broker.settings import KAFKA, settings

# A daemon of a broker that is none, and a user of it who waits to be killed.
DAEMON = """
import sys, time
from pathlib import Path
from typing import Self
from grete.testing.broker import daemon
daemon.LOOK_S = 0.01
daemon._keep(Path(sys.argv[1]), "host:1", "nowhere")
"""
USER = """
import sys, time
from pathlib import Path
from typing import Self
from grete.testing.broker import find_broker
print(find_broker(Path(sys.argv[1])).bootstrap, flush=True)
time.sleep(600)
"""


def start(program: str, directory: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", program, str(directory)], stdout=subprocess.PIPE, text=True)


@pytest.fixture(autouse=True)
def no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' own broker must not be found."""
    monkeypatch.delenv("GRETE_KAFKA", raising=False)


def test_an_address_in_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """GRETE_KAFKA is used as it is, and is not taken for a setting of a job."""
    monkeypatch.setenv("GRETE_KAFKA", "somewhere:9")
    with find_broker() as broker:
        assert broker.bootstrap == "somewhere:9"
    assert from_environment(dict(os.environ)) == Settings()


def test_a_broker_ends_with_its_last_user(tmp_path: Path) -> None:
    """The daemon goes on while one process uses the broker, and ends when the last has been killed."""
    (tmp_path / READY).write_text(json.dumps({"bootstrap": "host:1", "how": "nowhere"}))
    users = [start(USER, tmp_path) for _ in range(2)]
    for user in users:
        assert user.stdout is not None
        assert user.stdout.readline() == "host:1\n"
    with start(DAEMON, tmp_path) as daemon:
        users[0].send_signal(signal.SIGKILL)
        users[0].communicate()
        with pytest.raises(subprocess.TimeoutExpired):
            daemon.wait(0.5)
        users[1].send_signal(signal.SIGKILL)
        users[1].communicate()
        assert daemon.wait(60) == 0
    assert not (tmp_path / READY).exists()


def test_where_no_broker_can_be_had_it_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Docker, Maven and jars the error has what was tried and what would help."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoBroker, match=r"(?s)GRETE_KAFKA.*no engine answers.*there is no mvn"):
        find_broker(tmp_path / "broker")


class Engine:
    """A Docker engine that is there."""

    def ping(self) -> None:
        """Answer."""

    def close(self) -> None:
        """Do nothing."""


class Container:
    """A container that ends at once, or whose image cannot be had."""

    status, image_is_there, removed = "exited", True, 0

    def __init__(self, image: str) -> None:
        """Take the name of the image, which cannot be had."""
        self.image = image

    def with_bind_ports(self, container: int, host: int) -> "Container":
        """Bind a port."""
        assert container == host
        return self

    def with_env(self, name: str, value: str) -> None:
        """Take a setting of the broker."""

    def __enter__(self) -> Self:
        """Start."""
        if not self.image_is_there:
            raise OSError(f"{self.image}: too many requests")
        return self

    def __exit__(self, *error: object) -> None:
        """Remove it."""
        Container.removed += 1

    def get_wrapped_container(self) -> "Container":
        """Return the object that knows the state."""
        return self

    def reload(self) -> None:
        """Ask for the state."""

    def get_logs(self) -> tuple[bytes, bytes]:
        """Return the output so far."""
        return b"error while preparing configs", b""


def test_an_engine_that_cannot_run_a_broker_says_why_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image that cannot be fetched, a container that ends: the jars are tried next, and nothing is left."""
    monkeypatch.setattr("docker.from_env", lambda **_: Engine())
    monkeypatch.setattr("testcontainers.core.container.DockerContainer", Container)
    with (
        pytest.raises(
            ConfigError, match=r"Docker: apache/kafka:\S+: the broker at \S+ has ended: error while preparing"
        ),
        docker_broker(tmp_path),
    ):
        pass
    assert Container.removed == 1
    monkeypatch.setattr(Container, "image_is_there", False)
    with pytest.raises(ConfigError, match=r"Docker: .*too many requests"), docker_broker(tmp_path):
        pass


def test_the_settings_are_those_of_docker_compose(tmp_path: Path) -> None:
    """docker-compose.yml has no broker settings of its own: it mounts the file that the other brokers are made from.

    It runs the same version. A broker from the jars differs in its ports and its directory only.
    """
    compose = (Path(__file__).parents[2] / "docker-compose.yml").read_text()
    assert "./framework/testing/broker/server.properties:/mnt/shared/config/server.properties" in compose
    assert "KAFKA_" not in compose
    assert set(re.findall(r"image: (apache/kafka:\S+)", compose)) == {f"apache/kafka:{KAFKA}"}
    ours = {"listeners", "advertised.listeners", "controller.quorum.voters", "log.dirs"}
    assert {name for name, value in jars._own_settings(tmp_path, 1).items() if settings().get(name) != value} == ours
    assert settings()["process.roles"] == "broker,controller"
    assert not {"-", "_"} & set("".join(settings()))  # docker.py turns names into variables
