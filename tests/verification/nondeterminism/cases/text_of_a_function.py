"""The text of a function. It holds the function's address."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


def answered() -> None:
    pass


class TextOfAFunction(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return f"{str.upper(record.value)} by {answered}"


job = one_stage(TextOfAFunction)
