"""The text of an error that the task itself raises. It holds what the record holds."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Refused(Exception):
    pass


def check(line: str) -> str:
    if len(line) > 18:
        raise Refused(f"{len(line)} characters")
    return line


class OwnError(Lines):
    def answer(self, record: Record[str, str]) -> str:
        try:
            return check(record.value)
        except Refused as error:
            return f"refused: {error}"


job = one_stage(OwnError)
