"""A list that each call makes for itself. It does not outlive the record."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class ListOfTheCall(Lines):
    def answer(self, record: Record[str, str]) -> str:
        seen: list[str] = []
        for word in record.value.split():
            if word not in seen:
                seen.append(word)
        return str(len(seen))


job = one_stage(ListOfTheCall)
