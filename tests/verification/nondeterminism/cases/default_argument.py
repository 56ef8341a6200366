"""A default argument that is a list. It outlives the call, but not the process."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


def numbered(line: str, seen: list[str] = []) -> str:
    seen.append(line)
    return f"{len(seen)} {line}"


class DefaultArgument(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return numbered(record.value)


job = one_stage(DefaultArgument)
