"""A generator of the task. It begins again after a restart, and not at the commit."""

from collections.abc import Iterator

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


def numbers() -> Iterator[int]:
    number = 1
    while True:
        yield number
        number *= 3


class Generator(Lines):
    def init(self) -> None:
        self.numbers = numbers()

    def answer(self, record: Record[str, str]) -> str:
        return str(next(self.numbers))


job = one_stage(Generator)
