"""Membership, size and equality of sets. None of them goes by the order."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class SetAlgebra(Lines):
    def answer(self, record: Record[str, str]) -> str:
        words = set(record.value.split()) | {"so"}
        return f"{len(words)} {'be' in words} {words == {'to', 'be'}} {max(words)}"


job = one_stage(SetAlgebra)
