"""An object that parses line by line and keeps nothing between them. init makes it."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Parser:
    def __init__(self, separator: str) -> None:
        self.separator = separator

    def parts(self, line: str) -> list[str]:
        found = []
        for part in line.split(self.separator):
            found.append(part.strip())
        return found


class OwnParser(Lines):
    def init(self) -> None:
        self.parser = Parser(" ")

    def answer(self, record: Record[str, str]) -> str:
        return "/".join(self.parser.parts(record.value))


job = one_stage(OwnParser)
