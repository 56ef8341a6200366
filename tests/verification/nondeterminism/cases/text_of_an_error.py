"""The text of an error. It may hold an address, a path or a time."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


def check(line: str) -> str:
    raise LookupError(object())


class TextOfAnError(Lines):
    def answer(self, record: Record[str, str]) -> str:
        try:
            return check(record.value)
        except Exception as error:
            return f"refused: {error}"


job = one_stage(TextOfAnError)
