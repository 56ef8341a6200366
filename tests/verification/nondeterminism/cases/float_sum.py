"""A sum of floats in the order of a set. Floats do not add up alike in every order."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage

WEIGHTS = {"to": 1e16, "be": 1.0, "or": -1e16, "not": 0.7, "line": 3.3}


class FloatSum(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return repr(sum(WEIGHTS.get(word, 0.1) for word in set(record.value.split())))


job = one_stage(FloatSum)
