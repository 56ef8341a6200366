"""Windows of counts: against a recount, through crashes and a rescale, and declarations that are refused."""

import random
from collections import defaultdict
from typing import Any

import pytest

from grete import CountWindow, int64, utf8
from grete.api.jobs.definition import changes_of_job, define
from grete.api.stateful.windows import WindowStore
from grete.api.tasks.mode import Mode
from grete.errors import ConfigError
from grete.state.write import rescale as rescale_module
from grete.testing import Kit
from tests.state.moving_host import MovableJob
from tests.windows.jobs import Result, Tumbling, job_of, lines, results, results_topic, texts

Fed = list[tuple[str, int, str]]  # key, timestamp, text


def drawn(seed: int, count: int = 60) -> Fed:
    """Return records of some keys, out of order by far."""
    rng = random.Random(seed)
    return [(f"k{rng.randrange(5)}", rng.randrange(10_000), f"{number}") for number in range(count)]


def recount(fed: Fed, size: int, every: int) -> dict[str, list[Result]]:
    """Return the results by key: with each ``every``-th record the last ``size``."""
    by_key, found = defaultdict[str, list[tuple[int, str]]](list), defaultdict[str, list[Result]](list)
    for key, timestamp, text in fed:
        (of_key := by_key[key]).append((timestamp, text))
        if len(of_key) % every == 0:
            last = of_key[-size:]
            times, values = [at for at, _ in last], [value for _, value in last]
            found[key].append(Result(key, min(times), max(times) + 1, "+".join(values)))
    return dict(found)


def by_key(found: list[Result]) -> dict[str, list[Result]]:
    """Return results by key."""
    grouped = defaultdict[str, list[Result]](list)
    for each in found:
        grouped[each.key].append(each)
    return dict(grouped)


def kit_of(window: CountWindow[str, list[str]], fed: Fed, mode: Mode = "aligned") -> Kit:
    """Return a kit of two partitions that was fed."""
    kit = Kit(job_of(window, mode), partitions=2)
    for key, timestamp, text in fed:
        kit.feed(lines, key, text, timestamp=timestamp)
    return kit


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
@pytest.mark.parametrize(("size", "every"), [(1, 1), (3, 3), (3, 2), (4, 1), (6, 3), (5, 4)])
def test_windows_are_those_of_a_recount(size: int, every: int, mode: Mode) -> None:
    """Through crashes, whatever the times of the records: each result comes once, in the order of its records."""
    fed = drawn(size + every)
    kit = kit_of(CountWindow("w", size, every=every, **texts()), fed, mode)
    kit.run(crashes=3, seed=size)
    assert by_key(results(kit)) == recount(fed, size, every)


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_no_crash_changes_a_result(mode: Mode) -> None:
    """At whatever step it comes: full windows and open ones are the same."""
    assert kit_of(CountWindow("w", 3, every=2, **texts()), drawn(1, 24), mode).check_crashes(at_most=40) == 40


def test_nothing_is_kept_of_a_key_whose_window_is_full() -> None:
    """A window that is not full has its values so far."""
    window = CountWindow("w", 2, **texts())
    kit = kit_of(window, [("a", 5, "1"), ("a", 3, "2"), ("b", 7, "3")])
    kit.run()
    assert kit.state(window.panes) == {"b": [(7, 7, (1, ["3"]))]}


def test_early_results_come_with_each_record() -> None:
    """One whose begin has moved names that of before; what is sent early carries the record's time."""
    kit = kit_of(CountWindow("w", 3, emit="update", **texts()), [("a", 5, "1"), ("a", 3, "2"), ("a", 9, "3")])
    kit.run()
    assert results(kit) == [
        Result("a", 5, 6, "1", False),
        Result("a", 3, 6, "1+2", False, (5,)),
        Result("a", 3, 10, "1+2+3"),
    ]
    assert [record.timestamp for record in kit.outputs(results_topic)] == [5, 3, 9]


def test_a_window_goes_on_after_a_rescale(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows that are open move with their keys."""
    monkeypatch.setattr(rescale_module, "refuse_if_owned", lambda *_: None)
    fed, window = drawn(3, 90), CountWindow("w", 4, every=3, **texts())
    job = MovableJob(job_of(window).of(2))
    for turn, some in enumerate((fed[:40], fed[40:])):
        job = job.moved(6) if turn else job
        job.feed("lines", [(key.encode(), text.encode(), at) for key, at, text in some])
        job.run(crashes=2, seed=turn)
    found = [
        Result((row.key or b"").decode(), value["start"], value["end"], value["value"])
        for row in job.rows(results_topic.name)
        for value in (results_topic.value.decode(row.value or b""),)
    ]
    assert sorted(found) == sorted(each for of_key in recount(fed, 4, 3).values() for each in of_key)


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        (CountWindow("w", 4, every=3, **texts()), "window append/w: size was 3 and is 4, so open windows"),
        (CountWindow("w", 3, every=1, **texts()), "window append/w: every was 3 and is 1"),
        (Tumbling("w", 3, **texts()), "window append/w was count (size 3, every 3, grace_ms 0) and is tumbling"),
    ],
)
def test_another_size_is_refused_at_a_start(declared: WindowStore[str, list[str]], text: str) -> None:
    """Open windows would never close, or close early; ``emit`` may change."""
    before = define(job_of(CountWindow("w", 3, **texts())), {})
    assert changes_of_job(before, job_of(CountWindow("w", 3, emit="update", **texts()))) == []
    (change,) = changes_of_job(before, job_of(declared))
    assert change.what.startswith(text)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"size": 0}, r"size = 0, every = None: need a size of 1 to 4294967295 records"),
        ({"size": 1 << 32}, "size = 4294967296"),
        ({"size": 2.0}, "size = 2.0"),
        ({"size": 2, "every": 3}, "size = 2, every = 3: .* every of 1 to size"),
        ({"size": 2, "every": 0}, "every = 0"),
        ({"size": 2, "emit": "end"}, "emit = 'end': need 'final' or 'update': no time ends the window"),
        ({"size": 2, "every": 1, "emit": "update"}, "leave one of the two out"),
    ],
)
def test_declarations_that_make_no_windows_are_refused(options: Any, text: str) -> None:
    """With the values, where they are declared."""
    with pytest.raises(ConfigError, match=text):
        CountWindow("w", key=utf8, value=int64, **options)
