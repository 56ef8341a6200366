"""Words by their first letter, in a dict of lists. Both are in the order of the line."""

from collections import defaultdict

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class Grouped(Lines):
    def answer(self, record: Record[str, str]) -> str:
        groups: defaultdict[str, list[str]] = defaultdict(list)
        for word in record.value.split():
            groups[word[0]].append(word)
        return " ".join(f"{letter}:{','.join(words)}" for letter, words in groups.items())


job = one_stage(Grouped)
