"""A generator of the module that each record begins again. It does not outlive the record."""

from collections.abc import Iterator

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


def countdown(number: int) -> Iterator[int]:
    while number:
        yield number
        number -= 1


class NumbersOfTheRecord(Lines):
    def answer(self, record: Record[str, str]) -> str:
        steps = countdown(len(record.value))
        return f"{next(steps)} {next(steps)} {sum(steps)}"


job = one_stage(NumbersOfTheRecord)
