"""An embedded log for each test that asks; a Kafka broker with users, passwords and certificates."""

import contextlib
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from grete.errors import ConfigError
from grete.job.directory import JobDirectory
from grete.logs.address import LogAddress
from grete.logs.embedded import EmbeddedLog
from grete.logs.kafka import KafkaLog
from grete.logs.kafka.members_topic import KafkaMembersTopic
from grete.logs.patience import Patience
from grete.settings import Settings
from grete.state.pins.prepare import prepare
from tests.logs.guarded_job import job, rejected, sentences, totals
from tests.logs.secure_broker import SecureBroker, listed, secure_broker
from tests.suite.tiers import NEEDS_NOTHING


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a log that does not exist yet."""
    return tmp_path / "job" / "log.db"


@pytest.fixture
def log(path: Path) -> Iterator[EmbeddedLog]:
    """An empty log with the topics ``a``, ``out`` and ``shared``."""
    made = EmbeddedLog(path)
    for topic in ("a", "out", "shared"):
        made.create_topic(topic, 1)
    yield made
    made.close()


@pytest.fixture(scope="session")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """A broker from the jars, whatever the other tests run on: only there do we make the certificates."""
    with contextlib.ExitStack() as stack:
        try:
            broker = stack.enter_context(secure_broker(tmp_path_factory.mktemp("secure")))
        except ConfigError as error:
            pytest.fail(f"no broker with TLS and users can be had here: {error}. {NEEDS_NOTHING}", pytrace=False)
        yield broker
        gc.collect()  # clients of logs that were closed, as in tests/conftest.py


@pytest.fixture(scope="session")
def guarded(secure: SecureBroker, tmp_path_factory: pytest.TempPathFactory) -> SecureBroker:
    """The same, on which somebody else has made the topics of guarded_job.py, and its user may do what is listed."""
    log = KafkaLog(secure.plain)
    for topic in (sentences, totals, rejected):
        log.create_topic(topic.name, 1, plain=True)
    job_directory = JobDirectory(tmp_path_factory.mktemp("admin"), address=LogAddress(f"kafka://{secure.plain}"))
    prepare(job, log, job_directory, Settings())
    KafkaMembersTopic(secure.plain, None, job.name, Patience()).close()
    log.close()
    secure.allow(*listed())
    return secure
