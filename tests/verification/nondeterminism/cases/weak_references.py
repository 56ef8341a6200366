"""A dict of weak references. An entry is there until the collector comes by."""

import weakref

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Line:
    def __init__(self) -> None:
        self.me = self


LINES: weakref.WeakValueDictionary[str, Line] = weakref.WeakValueDictionary()


class WeakReferences(Lines):
    def answer(self, record: Record[str, str]) -> str:
        LINES[record.value] = Line()
        return str(len(LINES))


job = one_stage(WeakReferences)
