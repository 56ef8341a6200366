"""The names of an object's fields that differ from another's, in a set. Its order goes by hashes."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class NamesOfFields(Lines):
    def answer(self, record: Record[str, str]) -> str:
        before = {"text": "", "size": "0", "key": record.key}
        after = {"text": record.value, "size": str(len(record.value)), "key": record.key, "line": "x"}
        changed = {name for name in after if after[name] != before.get(name)}
        return f"changed: {', '.join(changed)}"


job = one_stage(NamesOfFields)
