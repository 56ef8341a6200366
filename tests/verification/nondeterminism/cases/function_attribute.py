"""An attribute of a function. It begins again after a restart, and not at the commit."""

from typing import Any

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


def numbered(line: str) -> str:
    counted: Any = numbered
    counted.count = getattr(counted, "count", 0) + 1
    return f"{counted.count} {line}"


class FunctionAttribute(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return numbered(record.value)


job = one_stage(FunctionAttribute)
