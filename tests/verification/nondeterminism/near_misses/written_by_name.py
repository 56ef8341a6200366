"""Fields of an object of the call, set by their names. It does not outlive the record."""

from types import SimpleNamespace

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class WrittenByName(Lines):
    def answer(self, record: Record[str, str]) -> str:
        line = SimpleNamespace()
        for number, word in enumerate(record.value.split()):
            setattr(line, f"word{number}", word)
        return str(line)


job = one_stage(WrittenByName)
