"""A function that calls itself, with an argument that has a default. None is changed."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


def nested(words: list[str], depth: int = 0, separators: tuple[str, ...] = ("(", ")")) -> str:
    if not words:
        return ""
    left, right = separators
    return f"{left}{words[0]}{nested(words[1:], depth + 1)}{right}"


class Recursion(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return nested(record.value.split())


job = one_stage(Recursion)
