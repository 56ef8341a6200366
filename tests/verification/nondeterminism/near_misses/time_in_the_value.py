"""A time that is a text in the record, in UTC. It is part of the input."""

from datetime import UTC, datetime

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class TimeInTheValue(Lines):
    def answer(self, record: Record[str, str]) -> str:
        at = datetime.fromisoformat(f"2026-01-{record.offset + 1:02d}T12:00:00").replace(tzinfo=UTC)
        return at.strftime("%A %d %B")


job = one_stage(TimeInTheValue)
