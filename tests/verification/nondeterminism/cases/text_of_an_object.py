"""The text of an object without __repr__. It holds the object's address."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Line:
    pass


class TextOfAnObject(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return f"{Line()}"


job = one_stage(TextOfAnObject)
