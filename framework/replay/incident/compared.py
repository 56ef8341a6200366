"""Comparison of a task's outputs and state in an incident: as logged, and as made again."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from grete.api.jobs.graph import StageGraph
from grete.execution.timing.reserved_stores import META, STREAM_TIME
from grete.protocol.ids import TopicPartition
from grete.replay.recorded import MadeOutput, State
from grete.state.read.live_entries import unexpired_of


class ComparedOutputs(NamedTuple):
    """The outputs to one partition. ``same`` of ``compared``; ``difference``: the first, as in the log and as now.

    ``numbered`` outputs are compared one by one; others are looked for in the log, where other tasks write, too.
    """

    partition: TopicPartition
    numbered: bool
    sent: list[MadeOutput]
    compared: int
    same: int
    difference: tuple[MadeOutput | None, MadeOutput | None] | None


class EntryDifference(NamedTuple):
    """An entry of a store that came out otherwise; None: there is none."""

    store: str
    key: bytes
    before: bytes | None
    now: bytes | None


def compare(
    partition: TopicPartition, before: Sequence[MadeOutput], now: Sequence[MadeOutput], *, numbered: bool
) -> ComparedOutputs:
    """Compare the outputs to one partition."""
    if not numbered:
        left = Counter(each._replace(seq=-1) for each in before)
        same, first = 0, None
        for each in now:
            if left[each] > 0:
                left[each] -= 1
                same += 1
            elif first is None:
                first = None, each
        return ComparedOutputs(partition, numbered, list(now), len(now), same, first)
    known = {each.seq: each for each in before}
    pairs = [(known[each.seq], each) for each in now if each.seq in known]
    differing = [pair for pair in pairs if pair[0] != pair[1]]
    return ComparedOutputs(
        partition, numbered, list(now), len(pairs), len(pairs) - len(differing), next(iter(differing), None)
    )


def compare_state(graph: StageGraph, before: State, now: State) -> tuple[int, list[EntryDifference]]:
    """Return the number of entries that the declared stores have in one or both, and those that differ."""
    count, found = 0, []
    times = before.get((META, STREAM_TIME)), now.get((META, STREAM_TIME))
    ids = graph.store_ids()
    for store in graph.all_stores():
        number = ids[store.name]
        was, came = (
            dict(unexpired_of(store, _of_store(state, number), time))
            for state, time in zip((before, now), times, strict=True)
        )
        keys = was.keys() | came.keys()
        count += len(keys)
        found += [
            EntryDifference(store.name, key, was.get(key), came.get(key))
            for key in sorted(keys)
            if was.get(key) != came.get(key)
        ]
    return count, found


def _of_store(state: Mapping[tuple[int, bytes], bytes], number: int) -> list[tuple[bytes, bytes]]:
    return sorted((key, value) for (store, key), value in state.items() if store == number)
