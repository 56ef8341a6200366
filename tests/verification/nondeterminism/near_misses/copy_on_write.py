"""A copy of a dict of the module, changed by the record. The dict stays as it is."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage

DEFAULTS = {"size": "10", "line": ""}


class CopyOnWrite(Lines):
    def answer(self, record: Record[str, str]) -> str:
        settings = dict(DEFAULTS)
        settings["line"] = record.value
        settings.update(key=record.key)
        return str(settings)


job = one_stage(CopyOnWrite)
