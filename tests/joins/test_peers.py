"""The cases of the join tests of Kafka Streams, quixstreams and Flink: their input, and what their authors expect.

``peers/*.toml`` has them as facts. A record is ``SIDE:key@timestamp=value``, with ``-`` for a tombstone; a line of them
is processed before the next one. ``!3`` is Flink's watermark 3 on both sides: no record of 3 ms or less follows. A
result is ``key@timestamp=left+right``. ``open``: what is told after the last record of the case, when time goes on.
``kept``: the times that both sides keep after each watermark. ``late``: the records that are late. Where ours differ,
``differs`` names the reason, and ``ours`` has our results.

In Kafka Streams and quixstreams a record joins what their stores still have. So there joins get a grace with which none
is late, and results are compared once time is past all of them, in any order; those of tables in their order.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from grete import Input, Job, Output, Record, Store, Task, VersionedStore, utf8
from grete.api.tasks.mode import Mode
from grete.settings import Settings
from grete.testing import Kit
from tests.joins.jobs import interval, job_of, joined, late_topic, lefts, marks, pairs_topic, rights, tables

pytestmark = pytest.mark.check  # 172 cases of 30 ms: what joins mean

PEERS = Path(__file__).parent / "peers"
MARK = "!"  # begins a watermark; the key of the records that bring it
FAR = 1_000_000_000  # ms
GRACES = {"flink": 0, "kafka_streams": FAR // 10, "quixstreams": FAR // 10}
RECORD = re.compile(r"([LR]):(\w+)@(\d+)=(\S+)")
SETTINGS = Settings(event_time_idle_ms=60_000)


class Case(NamedTuple):
    """A case of a peer's tests."""

    peer: str
    facts: dict[str, Any]

    @property
    def name(self) -> str:
        """Say which it is."""
        return f"{self.peer}: {self.facts['source']}"

    @property
    def expected(self) -> list[str]:
        """Our results: theirs, unless they differ, and what is open when theirs end."""
        return [*self.facts.get("ours", self.facts["expected"]).split(), *self.facts.get("open", "").split()]


def _files() -> dict[str, dict[str, Any]]:
    return {path.stem: tomllib.loads(path.read_text("utf-8")) for path in sorted(PEERS.glob("*.toml"))}


CASES = [Case(peer, facts) for peer, content in _files().items() for facts in content["case"]]


def _enriching(how: str, kind: str, mode: Mode, retention_ms: int) -> Job:
    """Return the job that puts the row of a table beside each record of the left side."""

    class Enrich(Task):
        stream = Input(lefts)
        table = Input(rights)
        rows = (
            Store("rows", utf8, utf8)
            if kind == "store"
            else VersionedStore("rows", utf8, utf8, retention_ms=retention_ms)
        )
        out = Output(pairs_topic)

        def process(self, record: Record[str, str | None]) -> None:
            rows: Any = self.rows
            times = () if kind == "store" else (record.timestamp,)
            if record.topic == rights.name and kind == "store" and record.value is None:
                rows.delete(record.key)
            elif record.topic == rights.name:
                rows.put(record.key, *times, record.value)
            elif (row := rows.get(record.key, *times)) is not None or how == "left":
                self.out.send(record.key, {"left": record.value, "right": row})

    return Job("enriching", stages=[Enrich], mode=mode)


def _job_of(case: Case, mode: Mode) -> Job:
    how, *parts = case.facts["join"].split()
    sizes = {name: int(ms) for name, ms in (part.split("=") for part in parts if "=" in part)}
    if "before_ms" in sizes:
        return job_of(interval(how=how, grace_ms=GRACES[case.peer], **sizes), mode, marked=case.peer == "flink")
    if parts[0] == "table":
        return job_of(tables(how), mode)
    return _enriching(how, parts[0], mode, sizes.get("retention_ms", 300_000))


def _feed(kit: Kit, line: str) -> None:
    for token in line.split():
        if token.startswith(MARK):
            for topic in (lefts, rights, marks):
                kit.feed(topic, MARK, MARK, timestamp=int(token[1:]) + 1)
        else:
            match = RECORD.fullmatch(token)
            assert match is not None, token
            side, key, timestamp, value = match.groups()
            topic = lefts if side == "L" else rights
            kit.feed(topic, key, None if value == "-" else value, timestamp=int(timestamp))


def _texts(kit: Kit) -> Iterator[str]:
    """Yield the results as the facts have them."""
    for each in joined(kit):
        if each.key != MARK:
            sides = f"{each.left or 'null'}+{each.right or 'null'}"
            yield f"{each.key}@{each.timestamp}={'-' if sides == 'null+null' else sides}"


def _kept(kit: Kit) -> str:
    """Return the times that both sides keep, as the facts have them."""
    sides = []
    for side, store in (("L", "texts-left"), ("R", "texts-right")):
        sides += [side, *(str(time) for key, time in kit.state(store) if key != MARK)]
    return " ".join(sides)


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_peers_case(case: Case, mode: Mode) -> None:
    """Its records, line by line and through two crashes, have its results."""
    kit = Kit(_job_of(case, mode), settings=SETTINGS)
    kept, by_order = [], "before_ms" not in case.facts["join"]
    for line in case.facts["records"].strip().split("\n"):
        _feed(kit, line)
        kit.process()
        if by_order or line.startswith(MARK):
            kit.advance(3 * SETTINGS.checkpoint_interval_ms)  # until it is committed, and stays in its order
        if line.startswith(MARK):
            kept.append(_kept(kit))
    for topic in (lefts, rights, *([marks] if case.peer == "flink" else [])):
        kit.feed(topic, MARK, MARK, timestamp=FAR)
    kit.run(crashes=2, seed=len(case.facts["records"]))
    if "kept" in case.facts:
        assert kept == case.facts["kept"].strip().split("\n")
    if "expected" in case.facts:
        found = list(_texts(kit))
        assert (found if by_order else sorted(found)) == (case.expected if by_order else sorted(case.expected))
    if not by_order:
        late = [f"{each.key}@{each.timestamp}={each.value}" for each in kit.outputs(late_topic)]
        assert late == case.facts.get("late", "").split()


def test_each_difference_has_a_reason() -> None:
    """Each difference and each omission has a reason, and most cases are the same."""
    differing = [case for case in CASES if "ours" in case.facts]
    assert all(case.facts.get("differs") for case in differing)
    assert [case.name for case in CASES if "differs" in case.facts and "ours" not in case.facts] == []
    left_out = [each for content in _files().values() for each in content["left_out"]]
    assert all(each["source"] and each["reason"] for each in left_out)
    assert (len(CASES), len(differing)) == (86, 10)
