"""A variable of a closure. It begins again after a restart, and not at the commit."""

from collections.abc import Callable

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


def counter() -> Callable[[], int]:
    count = 0

    def following() -> int:
        nonlocal count
        count += 1
        return count

    return following


number = counter()


class Closure(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return str(number())


job = one_stage(Closure)
