"""The clock, looked up by its name. Each call gives another time."""

import importlib

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class ClockByName(Lines):
    def answer(self, record: Record[str, str]) -> str:
        module = importlib.import_module("".join(("ti", "me")))
        return str(getattr(module, "_".join(("time", "ns")))())


job = one_stage(ClockByName)
