"""A table that init makes from a constant. It is the same after each restart."""

import json

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage

PRICES = '{"a": 120, "b": 80}'


class ParsedOnce(Lines):
    def init(self) -> None:
        self.prices = {name: int(cents) for name, cents in json.loads(PRICES).items()}

    def answer(self, record: Record[str, str]) -> str:
        return str(self.prices.get(record.key, 0))


job = one_stage(ParsedOnce)
