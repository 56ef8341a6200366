"""A cache of a pure function. What it holds, the function would return again."""

from functools import lru_cache

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


@lru_cache
def squares(number: int) -> int:
    return sum(each * each for each in range(number))


class CachedFunction(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return str(squares(len(record.value)))


job = one_stage(CachedFunction)
