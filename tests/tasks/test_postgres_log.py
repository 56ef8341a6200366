"""The worked example of a log: PostgreSQL keeps the shipped contracts, and a job on it is right when it is killed."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from grete.ports import JobMetadata
from grete.testing.contracts import FencedLogContract, LogContract, LogWorld, MetadataContract
from tasks.external.postgres_log import PostgresLog
from tests.verification.chaos.test_kills import kill_some

pytestmark = pytest.mark.postgres


class TestPostgresLog(LogContract):
    """Each clause of the contract of a log."""

    @pytest.fixture
    def world(self, postgres_database: str) -> LogWorld:
        """Return an empty database."""
        return LogWorld(lambda: PostgresLog(postgres_database))


class TestPostgresFences(FencedLogContract):
    """It compares and appends."""

    @pytest.fixture
    def world(self, postgres_database: str) -> LogWorld:
        """Return an empty database."""
        return LogWorld(lambda: PostgresLog(postgres_database))


class TestPostgresMetadata(MetadataContract):
    """Each clause of the contract of a job's metadata."""

    @pytest.fixture
    def begin(self, postgres_database: str) -> Iterator[Callable[[], JobMetadata]]:
        """Return a job's metadata; each connection ends with the test."""
        with ExitStack() as opened:
            yield lambda: opened.enter_context(closing(PostgresLog(postgres_database))).open_metadata("job")


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_kills_on_postgres(postgres_database: str, tmp_path: Path) -> None:
    """Each input comes out once, in order, whatever dies where; and the state says the same."""
    kill_some(tmp_path / "job", f"{PostgresLog.__module__}:{PostgresLog.__name__}:{postgres_database}", 6)
