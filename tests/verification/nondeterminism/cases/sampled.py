"""One line of two, by chance with weights. Each call gives another one."""

import random

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Sampled(Lines):
    def answer(self, record: Record[str, str]) -> str:
        rng = random.Random()
        return "".join(rng.choices(["kept", "dropped"], weights=[1, 1], k=8))


job = one_stage(Sampled)
