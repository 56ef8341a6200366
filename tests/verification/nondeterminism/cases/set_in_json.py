"""A set in a JSON text. Its order goes by hashes."""

import json

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class SetInJson(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return json.dumps(list(set(record.value)))


job = one_stage(SetInJson)
