"""The record's own timestamp, in UTC. It is part of the input."""

from datetime import UTC, datetime, timedelta

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class TimeOfTheRecord(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return (datetime.fromtimestamp(record.timestamp / 1000, UTC) + timedelta(days=1)).isoformat()


job = one_stage(TimeOfTheRecord)
