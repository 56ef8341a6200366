"""Jobs that an earlier build has run and stopped, or lost to a kill: this build goes on with their directories.

``stored.tar.xz`` was made by ``make_stored.py`` with the code of commit dccb5a1, release 0.1.
"""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from grete import Job, json
from grete.api.topics.reader import origin_of
from grete.logs.embedded import EmbeddedReader
from grete.logs.partition_reader import rows
from grete.ports import LogRow
from grete.protocol.frames import decode_headers
from grete.protocol.ids import TopicPartition
from grete.sinks.sql import ACCOUNT
from grete.state.read.local_reader import LocalReader
from tests.cli.test_run import grete
from tests.support.archives import unpack
from tests.upgrade import aligned, deterministic
from tests.upgrade.make_stored import FIRST, HERE, KINDS, PARTITIONS, SECOND

MORE = [("k0", "w0 w1"), ("k1", "w2 n0"), ("k2", "w3 n1"), ("k3", "w4 n0"), ("k4", "w5 w6")]
SETTINGS = {
    "at-least-once": ["--set=processing_guarantee=at-least-once"],
    "read-back": ["--set=output_delivery=sequenced"],
}

Lines = list[tuple[str, str]]


class Stored:
    """One directory, taken over by this build."""

    def __init__(self, kind: str, end: str, folder: Path) -> None:
        unpack(HERE / "stored.tar.xz", folder, lambda name: name.startswith(f"{kind}/{end}"))
        self.folder, self.kind = folder / kind / end, kind
        self.job: Job = (aligned if KINDS[kind][0] == "aligned.py" else deterministic).job
        self.before: Lines = FIRST + ([] if end == "stopped" else SECOND)
        self.uncommitted = len(SECOND) if end == "killed" else 0
        self.topics, self.keys = self._names()

    def go_on(self) -> str:
        """Run the job with this build over more lines, to their end; return what the command printed."""
        (self.folder / "more.txt").write_text("".join(f"{key}\t{value}\n" for key, value in MORE))
        code = str(HERE / KINDS[self.kind][0])
        options = ["--directory=job", "--set=event_time_idle_ms=200", *SETTINGS.get(self.kind, [])]
        out = grete("run", code, "--input=lines=more.txt", "--keys", *options, cwd=self.folder)
        topics, keys = self._names()
        assert topics == self.topics
        assert keys >= self.keys
        return out

    def state(self, name: str) -> dict[object, object]:
        """Return all entries of a store."""
        with LocalReader(self.folder / "job" / "state", self.job) as reader:
            return dict(reader.all(reader.store(name)))

    def outputs(self, topic: str) -> Iterator[LogRow]:
        """Yield all records of a topic, one partition after the other."""
        log = EmbeddedReader(self.folder / "job" / "log.db")
        for number in range(PARTITIONS):
            partition = TopicPartition(topic, number)
            yield from rows(log, partition, *log.bounds(partition))
        log.close()

    def totals(self) -> dict[str, list[int]]:
        """Return key → values of the topic with the results, in their order."""
        found = defaultdict(list)
        for row in self.outputs("totals"):
            assert row.key is not None
            assert row.value is not None
            found[row.key.decode()].append(int.from_bytes(row.value, "big"))
        return dict(found)

    def _names(self) -> tuple[set[str], set[str]]:
        log = EmbeddedReader(self.folder / "job" / "log.db")
        names = set(log.topics()), {key for key, _ in log.meta_items("")}
        log.close()
        return names


def counted(lines: Lines) -> Counter[str]:
    """Return the count of each word."""
    return Counter(word for _, value in lines for word in value.split())


def times(lines: Lines) -> dict[str, set[int]]:
    """Return the timestamps of each word's records, as ``make_stored`` gave them."""
    given = [1_000 + number for number in range(len(FIRST))] + [100_000 + number for number in range(len(SECOND))]
    found = defaultdict(set)
    for (_, value), time in zip(lines, given, strict=False):
        for word in value.split():
            found[word].add(time)
    return dict(found)


@pytest.fixture(params=["stopped", "killed"])
def end(request: pytest.FixtureRequest) -> str:
    """Return the end of the earlier build's run."""
    return str(request.param)


def once_each(stored: Stored) -> dict[str, list[int]]:
    """Let a job go on; check that state and running totals hold each word once. Return the rest of the outputs."""
    out = stored.go_on()
    assert f"all input is processed; {len(MORE) + stored.uncommitted} input records committed" in out
    everything = stored.before + MORE
    totals = stored.totals()
    assert stored.state("split/seen") == Counter(key for key, _ in everything)
    assert stored.state("count/counts") == counted(everything)
    assert {word: totals.pop(word) for word in counted(everything)} == {
        word: list(range(1, count + 1)) for word, count in counted(everything).items()
    }
    return totals


@pytest.mark.parametrize("end", ["stopped", "killed", "unapplied"])
def test_an_aligned_job_goes_on(end: str, tmp_path: Path) -> None:
    """State, windows, timers and three kinds of sinks: each line counts once, also one that waits for a sink."""
    stored = Stored("aligned", end, tmp_path)
    database = sqlite3.connect(stored.folder / "rows.db")
    assert database.execute("SELECT count(*) FROM totals").fetchone() == (counted(FIRST).total(),)
    rest = once_each(stored)
    before, everything = counted(stored.before), counted(stored.before + MORE)
    for word, possible in times(stored.before).items():
        assert rest.pop(f"window {word}") == [before[word]]
        fired = rest.pop(f"timer {word}")
        assert len(fired) == 1
        assert fired[0] - aligned.LONG_MS in possible
    assert rest == {}
    assert stored.state("count/windows") == {(aligned.LONG_MS, word): n for word, n in counted(MORE).items()}
    each = sorted((word, number) for word, count in everything.items() for number in range(1, count + 1))
    assert sorted(database.execute("SELECT word, total FROM totals")) == each
    assert len([*database.execute(f"SELECT job, task, owner, version FROM {ACCOUNT}")]) == PARTITIONS
    database.close()
    decode = json(aligned.Total).decode
    lines = [line for path in (stored.folder / "files").glob("[!.]*") for line in path.read_bytes().splitlines()]
    assert sorted((total.word, total.total) for total in map(decode, lines)) == each


@pytest.mark.parametrize("kind", ["transaction", "read-back"])
def test_a_deterministic_job_goes_on(kind: str, end: str, tmp_path: Path) -> None:
    """The outputs that left before a kill are not made twice, whichever way they leave; timers fire once."""
    stored = Stored(kind, end, tmp_path)
    left = {row.value for row in stored.outputs("dice")}
    rest = once_each(stored)
    assert sorted(rest) == sorted(f"timer {word}" for word in counted(stored.before))
    assert all(len(fired) == 1 for fired in rest.values())
    dice = list(stored.outputs("dice"))
    assert left <= {row.value for row in dice}
    assert len({row.value for row in dice}) == len(dice) == counted(stored.before + MORE).total()
    numbers, names = defaultdict(list), []
    for row in dice:
        headers = decode_headers(row.headers or b"")
        origin = origin_of(headers)
        assert origin is not None
        numbers[origin.producer].append(origin.seq)
        names.append([name for name, _ in headers])
    assert names[0] == ["grete.producer", "grete.seq", "grete.t"]
    assert all(each in (["grete"], names[0]) for each in names)  # one, once all that was visible is made again
    assert all(seqs == list(range(1, len(seqs) + 1)) for seqs in numbers.values())


def test_a_job_at_least_once_goes_on(end: str, tmp_path: Path) -> None:
    """No line is lost; the lines that were not committed at the kill may count twice."""
    stored = Stored("at-least-once", end, tmp_path)
    stored.go_on()
    least, most = counted(stored.before + MORE), counted(stored.before + stored.before[len(FIRST) :] + MORE)
    counts, totals = stored.state("count/counts"), stored.totals()
    assert counts.keys() == least.keys()
    for word, count in counts.items():
        assert least[str(word)] <= int(str(count)) <= most[str(word)]
        assert set(totals[str(word)]) == set(range(1, int(str(count)) + 1))
    windows = {word: totals[f"window {word}"] for word in counted(stored.before)}
    assert all(len(values) == 1 and values[0] >= counted(stored.before)[word] for word, values in windows.items())
