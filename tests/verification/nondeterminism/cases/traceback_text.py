"""A traceback. It holds paths and lines of the installation."""

import traceback

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class TracebackText(Lines):
    def answer(self, record: Record[str, str]) -> str:
        try:
            return str(int(record.value))
        except ValueError:
            return traceback.format_exc()


job = one_stage(TracebackText)
