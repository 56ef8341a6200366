"""A database in the memory of the process. It is empty after a restart."""

import sqlite3

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class DatabaseInMemory(Lines):
    def init(self) -> None:
        self.database = sqlite3.connect(":memory:")
        self.database.execute("CREATE TABLE lines (line TEXT)")

    def answer(self, record: Record[str, str]) -> str:
        self.database.execute("INSERT INTO lines VALUES (?)", (record.value,))
        return str(self.database.execute("SELECT count(*) FROM lines").fetchone()[0])


job = one_stage(DatabaseInMemory)
