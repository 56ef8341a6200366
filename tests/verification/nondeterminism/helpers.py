"""Functions that cases call in another module of their project."""

import time
from pathlib import Path


class Numbering:
    """Numbers lines as long as it lives."""

    def __init__(self) -> None:
        self.count = 0

    def numbered(self, line: str) -> str:
        self.count += 1
        return f"{self.count} {line}"


def stamp(line: str) -> str:
    return f"{time.time()} {line}"


def different_words(line: str) -> set[str]:
    return set(line.split())


def first_line(path: str) -> str:
    return Path(path).read_text().splitlines()[0]


_REMEMBERED: list[str] = []


def remembered(line: str) -> int:
    _REMEMBERED.append(line)
    return len(_REMEMBERED)
