"""The order of a set of objects. It goes by their addresses."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Word:
    def __init__(self, text: str) -> None:
        self.text = text


class SetOfObjects(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return " ".join(word.text for word in {Word(text) for text in record.value.split()})


job = one_stage(SetOfObjects)
