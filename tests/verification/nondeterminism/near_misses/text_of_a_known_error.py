"""The text of an error of int. It holds nothing but the text that was no number."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class TextOfAKnownError(Lines):
    def answer(self, record: Record[str, str]) -> str:
        try:
            return str(int(record.value))
        except ValueError as error:
            return str(error)


job = one_stage(TextOfAKnownError)
