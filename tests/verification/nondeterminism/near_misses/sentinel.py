"""An object that only says that there is nothing. Its address reaches no output."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage

MISSING = object()
PRICES: dict[str, object] = {"a": "1.20"}


class Sentinel(Lines):
    def answer(self, record: Record[str, str]) -> str:
        found = PRICES.get(record.key, MISSING)
        return "unknown" if found is MISSING else str(found)


job = one_stage(Sentinel)
