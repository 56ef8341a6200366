"""The order of a set, through a generator of the module. It goes by hashes."""

from collections.abc import Iterator

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


def words(line: str) -> Iterator[str]:
    yield from {word for word in line.split() if word}


class SetOfAGenerator(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return " ".join(words(record.value))


job = one_stage(SetOfAGenerator)
