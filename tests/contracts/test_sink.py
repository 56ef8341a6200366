"""Our sinks keep the contract of a sink (framework/testing/contracts/sink.py)."""

from pathlib import Path

import pytest

from grete.testing.contracts import EarlySinkContract, SinkContract, SinkWorld
from tests.contracts.sinks import files_world, postgres_world, sqlite_world


class _Places:
    """Files, and tables in SQLite and PostgreSQL."""

    @pytest.fixture(params=["files", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
    def world(self, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SinkWorld:
        """Return an empty place of each kind. No test waits long for another's lock."""
        monkeypatch.setattr("grete.sinks.sqlite.BUSY_S", 0.05)
        if request.param == "files":
            return files_world(tmp_path / "out")
        if request.param == "sqlite":
            return sqlite_world(tmp_path / "numbers.db")
        monkeypatch.setattr("grete.sinks.postgres.LOCK_MS", 50)
        return postgres_world(request.getfixturevalue("postgres_database"))


class TestSinks(_Places, SinkContract):
    """Checkpoint by checkpoint."""


class TestEarlySinks(_Places, EarlySinkContract):
    """Ahead of checkpoints."""
