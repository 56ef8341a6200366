"""The cases of the window tests of Kafka Streams, quixstreams and Flink: their input, and what their authors expect.

``peers/*.toml`` has them as facts. A record is ``key@timestamp=value``, a watermark ``!timestamp``, a result
``key[start,end]=value``, with ``-`` for a tombstone. ``final``: all final results, in any order; ``update``: the early
results of each window, in their order; ``last``: the last one of each window. ``late``: how many records are dropped.
Where ours differ, ``differs`` names the reason. Then ``ours`` has our results, or only those windows are compared that
begin at ``compare_from`` or later. Files end windows in ways of their own: ``_end``.
"""

import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from grete.api.tasks.mode import Mode
from grete.settings import Settings
from grete.testing import Kit
from tests.windows.jobs import (
    Hopping,
    Result,
    Session,
    Sliding,
    Tumbling,
    job_of,
    late_topic,
    lines,
    marks,
    results,
    texts,
)

pytestmark = pytest.mark.check  # 342 cases of 10 ms: what windows mean

PEERS = Path(__file__).parent / "peers"
KINDS: dict[str, Callable[..., Any]] = {
    "tumbling": Tumbling,
    "hopping": Hopping,
    "sliding": Sliding,
    "session": lambda name, **sizes: Session(name, merge=lambda a, b: a + b, **sizes),
}
NUMBERS: dict[str, Callable[[list[float]], float]] = {
    "count": len,
    "sum": sum,
    "mean": lambda numbers: sum(numbers) / len(numbers),
    "max": max,
    "min": min,
}
MARK = "!"  # begins a watermark; the key of the records that bring it
FAR = 3_600_000  # ms
EMITS = {"final": "final", "update": "update", "last": "update"}  # fact → emit=

RECORD = re.compile(r"(\w+)@(\d+)=(\w+)")
RESULT = re.compile(r"(\w+)\[(-?\d+),(-?\d+)\]=(\S+)")


class Case(NamedTuple):
    """A case of a peer's tests, and which of its facts."""

    peer: str
    facts: dict[str, Any]
    fact: str

    @property
    def name(self) -> str:
        """Say which it is."""
        return f"{self.peer}: {self.facts['source']}: {self.fact}"

    @property
    def kind(self) -> str:
        """The kind of window."""
        kind: str = self.facts["window"].split()[0]
        return kind

    @property
    def sizes(self) -> dict[str, int]:
        """The window's sizes, in ms."""
        return {name: int(ms) for name, ms in (size.split("=") for size in self.facts["window"].split()[1:])}


def files() -> dict[str, dict[str, Any]]:
    """Return the cases of each peer."""
    return {path.stem: tomllib.loads(path.read_text()) for path in sorted(PEERS.glob("*.toml"))}


CASES = [
    Case(peer, facts, fact)
    for peer, content in files().items()
    for facts in content["case"]
    for fact in EMITS
    if fact in facts
]


def _end(case: Case, end: int) -> int:
    """Return the end behind the last ms, as ours have it: a session's last ms is that of its last record."""
    if case.kind == "session" and case.peer == "flink":
        return end - case.sizes["gap_ms"] + 1
    return end + (case.kind in ("session", "sliding"))


def _value(case: Case, texts_so_far: str) -> str:
    """Return the value that a case makes of the texts of its records, as its results have it."""
    how, parts = case.facts.get("value", "text"), texts_so_far.split("+")
    if how in NUMBERS:
        numbers = [float(part) if how != "count" else 1.0 for part in parts]
        return f"{NUMBERS[how](numbers):g}"
    return "+".join(sorted(parts)) if how == "sorted" else texts_so_far


def _expected(case: Case, text: str) -> list[Result]:
    """Return the results of a text, tombstones among them."""
    found = [
        Result(key, int(start), _end(case, int(end)), value, case.fact == "final")
        for key, start, end, value in RESULT.findall(text)
    ]
    assert len(found) == len(text.split()), text
    return found


def _by_window(found: Iterable[Result]) -> dict[tuple[str, int], list[Result]]:
    windows = defaultdict[tuple[str, int], list[Result]](list)
    for result in found:
        windows[result.key, result.start].append(result)
    return windows


def _last(found: list[Result]) -> list[Result]:
    """Return the last early result of each window that still holds."""
    last: dict[tuple[str, int], Result] = {}
    for result in found:
        for start in result.replaces:
            del last[result.key, start]
        last[result.key, result.start] = result._replace(replaces=())
    return sorted(last.values())


def run(case: Case, mode: Mode) -> tuple[list[Result], int]:
    """Return the results of our window, through crashes, and how many records were late."""
    window = KINDS[case.kind]("w", **case.sizes, emit=EMITS[case.fact], **texts())
    words = case.facts["input"].split()
    if marked := case.peer == "flink":  # its watermarks come beside the records
        words.insert(0, f"{MARK}{-FAR}")
    kit = Kit(job_of(window, mode, marked=marked), settings=Settings(event_time_idle_ms=FAR))
    for number, word in enumerate(words):
        if word.startswith(MARK):
            for topic in (lines, marks):  # no later record is of that ms or before
                kit.feed(topic, MARK, "", timestamp=int(word[1:]) + 1)
        else:
            match = RECORD.fullmatch(word)
            assert match, word
            kit.feed(lines, match[1], match[3], timestamp=int(match[2]))
        if marked:
            kit.advance(kit.settings.checkpoint_interval_ms)
            if number % 5 == 2:
                kit.crash("append")
    if marked:
        kit.advance(3 * kit.settings.checkpoint_interval_ms)
    else:
        kit.run(crashes=2, seed=1)
    found = [r._replace(value=_value(case, r.value)) for r in results(kit) if r.key != MARK]
    late = [key for key, _ in kit.pairs(late_topic) if key != MARK]
    return [r for r in found if r.final == (case.fact == "final")], len(late)


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_windows_are_as_in_the_tests_of_others(case: Case, mode: Mode) -> None:
    """Or they differ for the reason that is given."""
    facts = case.facts
    found, late = run(case, mode)
    assert late == facts.get("late", late)
    theirs = _expected(case, facts[case.fact])
    expected = _expected(case, facts["ours"]) if "ours" in facts else theirs
    assert (expected is theirs) or sorted(theirs) != sorted(expected), "it does not differ: drop ours"
    if (first := facts.get("compare_from")) is not None:
        assert not found or any(r.start < first for r in found), "it does not differ: drop compare_from"
        found = [r for r in found if r.start >= first]
        expected = [r for r in expected if r.start >= first]
    if case.fact == "final":
        assert sorted(found) == sorted(expected)
    elif case.fact == "last":
        assert _last(found) == sorted(expected)
    else:
        _compare_updates(found, expected)


def _compare_updates(found: list[Result], expected: list[Result]) -> None:
    """Compare the early results of each window in their order: a session that is replaced has a tombstone there."""
    buried = {(r.key, r.start) for r in expected if r.value == "-"}
    told = _by_window(r for r in expected if r.value != "-")
    assert _by_window(r._replace(replaces=()) for r in found) == told
    replaced = {(r.key, start) for r in found for start in r.replaces}
    assert replaced == {(key, start) for key, start in buried if len(told[key, start]) == 1}


def test_each_case_that_is_left_out_or_differs_has_its_reason() -> None:
    """And there are more than the forty that we wanted."""
    for content in files().values():
        reasons = content["reasons"]
        used = {facts["differs"] for facts in content["case"] if "differs" in facts}
        assert used == set(reasons)
        for facts in content["case"]:
            assert ("differs" in facts) == ("ours" in facts or "compare_from" in facts), facts["source"]
        assert all(out["source"] and out["why"] for out in content["left_out"])
    assert len(CASES) >= 100
