"""An embedded log for each test that asks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from framework.logs.embedded import EmbeddedLog


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a log may be made."""
    return tmp_path / "job" / "log.db"


@pytest.fixture
def log(path: Path) -> Iterator[EmbeddedLog]:
    """An empty log with the topics ``a``, ``out`` and ``shared``."""
    made = EmbeddedLog(path)
    for topic in ("a", "out", "shared"):
        made.create_topic(topic, 1)
    yield made
    made.close()
