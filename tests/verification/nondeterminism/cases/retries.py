"""The number of attempts before something worked. The second time it may work at once."""

import random

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


def fetched(line: str) -> str:
    if random.random() < 0.7:
        raise ConnectionError
    return line


class Retries(Lines):
    def answer(self, record: Record[str, str]) -> str:
        tries = 0
        while True:
            tries += 1
            try:
                return f"{fetched(record.value)} after {tries}"
            except ConnectionError:
                continue


job = one_stage(Retries)
