"""A list that a function is given and fills. The call made it."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


def collect(word: str, into: list[str]) -> None:
    if word not in into:
        into.append(word)


class ListAsAnArgument(Lines):
    def answer(self, record: Record[str, str]) -> str:
        found: list[str] = []
        for word in record.value.split():
            collect(word, found)
        return ",".join(found)


job = one_stage(ListAsAnArgument)
