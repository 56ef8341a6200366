"""An attribute that is set by its name. It begins again after a restart, and not at the commit."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class HiddenAttribute(Lines):
    def answer(self, record: Record[str, str]) -> str:
        name = "".join(("co", "unt"))
        setattr(self, name, getattr(self, name, 0) + 1)
        return str(getattr(self, name))


job = one_stage(HiddenAttribute)
