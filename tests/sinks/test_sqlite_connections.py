"""The connections of the SQLite sink."""

import sqlite3
from pathlib import Path

from grete.sinks.sqlite import SqliteDialect


def test_what_is_applied_survives_a_power_loss_in_each_journal_mode(tmp_path: Path) -> None:
    """In the mode WAL, SQLite's default syncs no commit; what the sink has taken is deleted from the state."""
    path = tmp_path / "shop.db"
    made = sqlite3.connect(path)
    made.execute("PRAGMA journal_mode = WAL")
    made.close()
    connection = SqliteDialect(str(path)).connect()
    assert connection.execute("PRAGMA synchronous").fetchone() == (3,)  # EXTRA
    connection.close()
