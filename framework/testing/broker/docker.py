"""A broker in a container, where a Docker engine answers."""

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from grete.errors import ConfigError
from grete.testing.broker.settings import KAFKA, answers, free_port, settings

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

SAID_MAX = 2_000  # letters: the last lines have the cause


@contextlib.contextmanager
def docker_broker(directory: Path, *, keep: bool = False) -> Iterator[tuple[str, str]]:
    """Run a broker in a container, removed at the end. Raises ConfigError if Docker cannot do that here.

    ``keep``: its data stays, in a volume named after ``directory``.
    """
    try:
        import docker
        from testcontainers.core.container import DockerContainer

        engine = docker.from_env(timeout=5)
        engine.ping()
        engine.close()
    except ImportError as error:
        raise ConfigError(f"Docker: the package {error.name} is not installed (pip install testcontainers)") from error
    except Exception as error:  # whatever its client raises where there is no engine
        raise ConfigError(f"Docker: no engine answers: {error}") from error
    port = free_port()
    host = "localhost"
    bootstrap = f"{host}:{port}"
    container = DockerContainer(f"apache/kafka:{KAFKA}").with_bind_ports(port, port)
    if keep:
        volume = hashlib.blake2b(bytes(directory.absolute()), digest_size=8).hexdigest()
        container.with_volume_mapping(f"grete-{volume}", settings()["log.dirs"], "rw")
    listeners = {
        "listeners": f"PLAINTEXT://:{port},CONTROLLER://:9093",
        "advertised.listeners": f"PLAINTEXT://{host}:{port}",
    }
    for name, value in (settings() | listeners).items():
        container.with_env(f"KAFKA_{name.upper().replace('.', '_')}", value)  # no name has "_" or "-"
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(container)
            answers(bootstrap, alive=lambda: _runs(container))
        except Exception as error:  # whatever its client raises where the image cannot be had, or a port is taken
            raise ConfigError(f"Docker: apache/kafka:{KAFKA}: {error}{_said(container)}") from error
        yield bootstrap, f"Docker, apache/kafka:{KAFKA}"


def _runs(container: "DockerContainer") -> bool:
    own = container.get_wrapped_container()
    own.reload()
    return own.status in {"created", "running"}


def _said(container: "DockerContainer") -> str:
    """Return the end of what a container has said, "" if it was never made."""
    with contextlib.suppress(Exception):  # it is beside a cause that is told
        return ": " + b"".join(container.get_logs()).decode(errors="replace")[-SAID_MAX:]
    return ""
