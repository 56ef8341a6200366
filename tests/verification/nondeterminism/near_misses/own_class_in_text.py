"""The text of an object that says itself what it is. There is no address in it."""

from dataclasses import dataclass

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


@dataclass
class Line:
    text: str


class OwnClassInText(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return f"{Line(record.value)}"


job = one_stage(OwnClassInText)
