"""A function of urllib that asks no other system. It computes a text."""

from urllib.parse import quote

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Quoted(Lines):
    def answer(self, record: Record[str, str]) -> str:
        return quote(record.value)


job = one_stage(Quoted)
