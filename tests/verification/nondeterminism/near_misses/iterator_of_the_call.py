"""An iterator that each call makes for itself. It does not outlive the record."""

from itertools import count

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class IteratorOfTheCall(Lines):
    def answer(self, record: Record[str, str]) -> str:
        numbers = count(1)
        return " ".join(f"{next(numbers)} {word}" for word in record.value.split())


job = one_stage(IteratorOfTheCall)
