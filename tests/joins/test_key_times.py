"""Joins and versioned stores know in memory the times that their stores have for a key."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grete import Store, utf8
from grete.api.stateful import key_times
from grete.api.stateful.declaration import TIME_MAX, TIME_MIN, timed_key_serde
from grete.api.stateful.joins import How
from grete.api.stateful.key_times import KeyTimes
from grete.execution.task_code.binding import bind_store
from grete.stores.memory import MemoryStore
from grete.stores.overlay.overlay import Overlay
from grete.testing import Kit
from tests.joins.jobs import interval, job_of, joined
from tests.joins.test_against_batch import BOUNDS, GRACE, HOWS, Fed, few, in_batch, order, records, run

many = settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
KINDS = ["put", "put", "delete", "mark", "undo", "keep"]
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from("ab"), st.integers(-1, 1)), max_size=60)


@many
@given(steps=STEPS, keys_max=st.integers(1, 3), times_max=st.integers(0, 4))
def test_what_is_known_is_what_a_scan_finds(steps: list[tuple[str, str, int]], keys_max: int, times_max: int) -> None:
    """Through rows that are put twice or taken back, keys that are forgotten, and those that have too many rows."""
    overlay = Overlay(MemoryStore({0: "timed"}), [0], uncommitted_state_bytes_max=1 << 20, read_cache_bytes_max=1 << 20)
    declared: Store[tuple[str, int], str] = Store("timed", timed_key_serde(utf8), utf8)
    store = bind_store(declared, overlay.store(0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_times, "KEYS_MAX", keys_max)
        patch.setattr(key_times, "TIMES_MAX", times_max)
        times = KeyTimes(store, utf8, lambda: overlay.undone)
        for step, key, time in steps:
            if step == "put":
                store.put((key, time), "row")
                times.put(key, time)
            elif step == "delete" and store.get((key, time)) is not None:
                store.delete((key, time))
                times.delete(key, time)
            elif step == "mark":
                overlay.begin_undo()
            elif step == "undo":
                overlay.undo()
            elif step == "keep":
                overlay.end_undo()
            there = [at for (_, at), _ in store.range((key, TIME_MIN), (key, TIME_MAX))]
            assert times.of(key) == (there if len(there) <= times_max else None)


@few
@given(
    fed=records(),
    how=st.sampled_from(HOWS),
    bounds=st.sampled_from(BOUNDS),
    times_max=st.integers(0, 3),
    crashes=st.integers(0, 2),
)
def test_a_join_of_keys_with_many_rows_is_that_of_a_batch(
    fed: Fed, how: How, bounds: tuple[int, int], times_max: int, crashes: int
) -> None:
    """They are scanned, from one row on that is too many, until there are few again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_times, "KEYS_MAX", 1)
        patch.setattr(key_times, "TIMES_MAX", times_max)
        kit = Kit(job_of(interval(*bounds, how=how, grace_ms=GRACE)))
        run(kit, fed, lambda topic, key, text, at: kit.feed(topic, key, text, timestamp=at), crashes, seed=1)
    found = [each for each in joined(kit) if each.key != "end"]
    assert order(found) == order(in_batch(fed, *bounds, how))
