"""The order of a set that is an entry of a dict. It goes by hashes."""

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class DictOfSets(Lines):
    def answer(self, record: Record[str, str]) -> str:
        by_letter: dict[str, set[str]] = {}
        for word in record.value.split():
            by_letter.setdefault(word[0], set()).add(word)
        return " ".join(",".join(words) for words in by_letter.values())


job = one_stage(DictOfSets)
