"""Samples of the keys that tasks process: those that take most of the time, and those that come most often.

A thread looks at the batch under way now and then; the loop that processes it does nothing for that.
"""

import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from random import randrange
from typing import NamedTuple

from grete.protocol.report import HotKeys
from grete.quoting import HIDDEN, shows_keys

KEPT_S = 60.0  # for which a sample counts
FRESH_S = 1.0  # between two counts of the samples
KEPT_MAX = 2_000  # samples of a worker: a minute of them, and some
LEAST = 30  # of a task, before anything is said of its keys
TOP = 5  # keys that are told: more are none that a person would look at
KEY_MAX = 80  # characters of a key that are shown


class _Sample(NamedTuple):
    at_s: float
    task: str
    now: bytes | None  # of the record that is processed
    other: bytes | None  # of any record of its batch


class KeySamples:
    """The samples of one worker. The thread that takes them, and the loop that reports, may both call."""

    def __init__(self) -> None:
        """Have no samples."""
        self._samples: deque[_Sample] = deque(maxlen=KEPT_MAX)
        self._hottest: tuple[HotKeys, ...] = ()
        self._told_s = 0.0

    def take(self, task: str, keys: Sequence[bytes | None], index: int) -> None:
        """Take one of a task, which is at the record ``index`` of a batch with these keys."""
        other = keys[randrange(len(keys))]  # noqa: S311  # it is a sample
        self._samples.append(_Sample(time.monotonic(), task, keys[index], other))

    def hottest(self) -> tuple[HotKeys, ...]:
        """Return the hottest keys of each task of which there are enough samples, as they were a moment ago."""
        now_s = time.monotonic()
        if self._samples and now_s - self._told_s >= FRESH_S:
            self._told_s, self._hottest = now_s, tuple(self._counted(now_s - KEPT_S))
        return self._hottest

    def _counted(self, since_s: float) -> Iterator[HotKeys]:
        by_task = dict[str, list[_Sample]]()
        for sample in tuple(self._samples):
            if sample.at_s >= since_s:
                by_task.setdefault(sample.task, []).append(sample)
        for task, samples in by_task.items():
            if len(samples) >= LEAST:
                by_time, by_count = _top(each.now for each in samples), _top(each.other for each in samples)
                yield HotKeys(task=task, by_time=by_time, by_count=by_count)


def _top(keys: Iterable[bytes | None]) -> tuple[tuple[str, float], ...]:
    counts = Counter(keys)
    total = counts.total()
    return tuple((_shown(key), round(count / total, 3)) for key, count in counts.most_common(TOP))


def _shown(key: bytes | None) -> str:
    """Return a key as text, if that is shown: as it is if it is printable, else its bytes."""
    if key is None:
        return "(no key)"
    if not shows_keys():
        return HIDDEN
    text = key[: 4 * KEY_MAX].decode(errors="replace")
    return text[:KEY_MAX] if text.isprintable() and "\ufffd" not in text else f"0x{key[: KEY_MAX // 2].hex()}"
