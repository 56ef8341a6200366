"""All that a live task may use, in batch: a job from history, taken live, equals one that was live all along."""

import random
import re
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grete.api.jobs.graph import RESERVED_STORES, StageGraph
from grete.api.tasks.mode import Mode
from grete.errors import ConfigError
from grete.spark.backfill.audit import Audited, audit
from grete.spark.backfill.backfill import BackfillSpec, backfill
from grete.spark.backfill.history_checks import Accept, Accepted
from grete.spark.backfill.ranges import BackfillEnd
from grete.spark.format.options import LogSpec
from grete.state.read.checkpoints.commits import all_wirings
from grete.testing.broker import Broker
from tests.spark.backfill.damage import damage
from tests.spark.backfill.scene import NOW_MS, Silent
from tests.support import parity
from tests.support.parity import ROWS, Row, job_of
from tests.support.parity_job import SETTINGS, Outputs, ParityJob, State
from tests.support.parity_records import Fed, fed, fed_visits, table
from tests.support.parity_topics import BEGIN_MS, FAR, PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]  # the first to come starts Spark

HISTORY, TAIL = [*fed(0, 150), *fed_visits(0, 150)], [*fed(160, 240), *fed_visits(160, 240)]


class Side(ParityJob):
    """A job with a log of its own."""

    def __init__(
        self,
        directory: Path,
        made_by: str,
        *,
        log: str = "embedded",
        suffix: str = "",
        shift_ms: int = 0,
        before: Sequence[Fed] = (),
    ) -> None:
        """Make its topics; ``before``: records that are there before the job is, all of them later by ``shift_ms``."""
        directory.mkdir()
        imported = "from tests.support.parity import OF_THE_MODE, ROWS, both_modes, job_of, left_out"
        (directory / "job.py").write_text(f"{imported}\n\njob = {made_by}\n")
        super().__init__(directory, log=log, suffix=suffix, shift_ms=shift_ms)
        self.make(before)
        self.where = LogSpec(log, "", str(self.directory.directory / "log.db"))

    def wanted(self, history: dict[str, str]) -> BackfillSpec:
        """Return the request for a backfill or an audit; ``history``: topic → path."""
        paths = {f"{topic}{self.suffix}": path for topic, path in history.items()}
        sources = {topic: path for topic, path in paths.items() if topic in self.read}
        work = str(self.directory.directory / "spark")
        # the history has letters, and what follows it has times of its own
        accepted = Accepted(refused=1_000, kinds=frozenset({Accept.OVERLAP}))
        return BackfillSpec(
            self.job, self.reference, self.where, SETTINGS, sources, work, outputs=True, accepted=accepted
        )

    def damaged(self) -> set[tuple[str, int, bytes]]:
        """Change an entry of each task that has any; return stage, partition and key of each."""
        found, state = set[tuple[str, int, bytes]](), self.state()
        for (stage, partition), wiring in zip(self.job.tasks(), all_wirings(self.job), strict=True):
            entries = {entry[2:] for entry in state if entry[:2] == (stage.name, partition)}
            own = {entry for entry in entries if entry[0] not in RESERVED_STORES.values()}
            entry = damage(self.log, self.directory.directory / "log.db", wiring.changelog, own)
            if entry is not None:
                found.add((stage.name, partition, entry[1]))
        return found


class Compared(NamedTuple):
    """The results of a mode's two jobs, and an audit of the second one after it was damaged."""

    live: tuple[State, Outputs]
    built: tuple[State, Outputs]
    damaged: set[tuple[str, int, bytes]]
    audited: Audited


def files(directory: Path, shift_ms: int = 0) -> dict[str, str]:
    """Write the history as files without offsets; return topic → path."""
    found = {}
    for topic, same in groupby(sorted([*HISTORY, *table()], key=lambda record: record[0]), lambda record: record[0]):
        columns = [list(column) for column in zip(*(record[1:] for record in same), strict=True)]
        values = pa.array([value.to_bytes(8, "big") for value in columns[1]], pa.binary())
        found[topic] = str(directory / f"{topic}.parquet")
        times = [at + shift_ms for at in columns[2]]
        pq.write_table(pa.table({"key": columns[0], "value": values, "timestamp": times}), found[topic])
    return found


def compare(spark: "SparkSession", directory: Path, made_by: str) -> Compared:
    """Run one job over all, and another one from its history in Spark over the rest; damage and audit that one."""
    live = Side(directory / "live", made_by, before=[*HISTORY, *table()])
    live.run(TAIL)
    built, history = Side(directory / "built", made_by), files(directory)
    backfill(spark, built.wanted(history), BackfillEnd(now=False, offsets={}), built.log, Silent())
    built.run(TAIL)
    made = [(side.state(), side.outputs()) for side in (live, built)]
    damaged = built.damaged()
    audited = audit(spark, built.wanted(history), built.log, Silent(), aligned=True, makes_calls=True)
    live.log.close()
    built.log.close()
    return Compared(made[0], made[1], damaged, audited)


@pytest.mark.parametrize(
    ("mode", "rows"),
    [
        ("aligned", "ROWS"),
        ("deterministic", "OF_THE_MODE"),
        pytest.param("deterministic", "ROWS", marks=pytest.mark.prove),
    ],
)
def test_a_job_built_from_history_equals_one_that_ran_live(
    spark: "SparkSession", tmp_path: Path, mode: Mode, rows: str
) -> None:
    """The same entries of all stores and the same outputs, each once; the audit finds the damage and nothing else."""
    result = compare(spark, tmp_path, f"job_of({mode!r}, {rows})")
    found: Sequence[Row] = getattr(parity, rows)
    stages = job_of(mode, found).stages
    for row in found:
        if mode in row.modes:
            check(result, row.what, [stage for stage in stages if stage.task in row.stages], same=row.same)


def check(result: Compared, what: str, stages: Sequence[StageGraph], *, same: bool) -> None:
    """Compare what the two jobs have made in the stages of a row, and what the audit says of them."""
    names = {stage.name for stage in stages}
    written = {topic.name for stage in stages for topic in (*stage.topics_written(), *stage.dead_letters())}
    (live, live_sent), (built, built_sent) = result.live, result.built
    if same:
        assert of(built, names) == of(live, names), what
        for topic in written & live_sent.keys():
            assert built_sent[topic] == live_sent[topic], what
    damaged = {each for each in result.damaged if each[0] in names}
    differences = [each for each in result.audited.differences if each.stage in names]
    assert {(each.stage, each.partition, each.key) for each in differences} == damaged, what
    assert len(differences) == len(damaged) > 0, what


def test_an_audit_leaves_out_what_aligned_tasks_have_from_a_clock_alone(spark: "SparkSession", tmp_path: Path) -> None:
    """The job is built from history, and goes on; of what the clock has told, nothing is compared, and all else is."""
    side, history = Side(tmp_path / "built", "left_out()"), files(tmp_path)
    backfill(spark, side.wanted(history), BackfillEnd(now=False, offsets={}), side.log, Silent())
    events_ = [(key, value, at) for topic, key, value, at in HISTORY if topic == "events"]
    built, stages = side.state(), {stage.name: stage.store_ids() for stage in side.job.stages}
    last = {key: at for key, _, at in events_}
    assert stored(built, "taken-in", stages["taken-in"]["last"]) == last  # as if each had come at its time
    seen = {f"{key}{value}": at for key, value, at in events_}
    alive = {key: at for key, at in seen.items() if at + 400 > max(last.values())}
    assert stored(built, "recent", stages["recent"]["seen"]) == alive
    expiries = {
        entry[3].decode(): int.from_bytes(value[:8]) - (1 << 63)
        for entry, value in built.items()
        if entry[0] == "recent"
    }
    assert expiries == {key: at + 400 for key, at in alive.items()}  # each from its own time on
    assert not stored(built, "remind", stages["remind"]["fired"])
    side.run(TAIL)
    near = {f"{key} {at}" for key, value, at in events_ if value != FAR}
    assert stored(side.state(), "remind", stages["remind"]["fired"]).keys() >= near
    damaged, told = side.damaged(), Silent()
    audited = audit(spark, side.wanted(history), side.log, told, aligned=True)
    assert set(audited.left_out) == {"taken-in", "recent", "remind", "reminded"}
    assert {(each.stage, each.partition, each.key) for each in audited.differences} == {
        each for each in damaged if each[0] == "sums"
    }
    assert audited.wrong == PARTITIONS
    assert any(
        re.fullmatch(r"not compared: stage remind has wall-clock timers: .*, which aligned mode does not record", line)
        for line in told.said
    )
    assert "not compared: stage reminded reads what stage remind sends" in told.said
    side.log.close()


def stored(state: State, stage: str, store: int) -> dict[str, int]:
    """Return a store of a stage, all tasks together: key → the number in its value."""
    return {
        entry[3].decode(): int.from_bytes(value[-8:])
        for entry, value in state.items()
        if (entry[0], entry[2]) == (stage, store)
    }


def of(state: State, stages: Collection[str]) -> State:
    """Return the entries of these stages."""
    return {entry: value for entry, value in state.items() if entry[0] in stages}


@pytest.mark.parametrize("log", ["embedded", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.prove])])
def test_a_job_of_both_modes(spark: "SparkSession", log: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A deterministic stage with timers, an aligned one with windows behind it: as live from the start; it has run."""
    if log == "kafka":
        broker: Broker = request.getfixturevalue("kafka_broker")
        log = f"kafka://{broker.bootstrap}"
    shift_ms = NOW_MS - 60_000 - BEGIN_MS  # Kafka deletes what is of long ago
    made = []
    for side in ("live", "built"):
        suffix = f"-{side}-{random.randrange(1 << 30)}"
        before = HISTORY if side == "live" else ()
        made_by = f"both_modes({suffix!r})"
        job = Side(tmp_path / side, made_by, log=log, suffix=suffix, shift_ms=shift_ms, before=before)
        wanted = job.wanted(files(tmp_path, shift_ms))
        if side == "built":
            backfill(spark, wanted, BackfillEnd(now=False, offsets={}), job.log, Silent())
        job.run(TAIL)
        made.append((job.state(), list(job.outputs().values())))
        if side == "built":
            audited = audit(spark, wanted, job.log, Silent(), aligned=True)
            assert (audited.wrong, audited.differences) == (0, [])
            with pytest.raises(ConfigError, match=r"is deterministic in part and has run .*: give the job"):
                backfill(spark, wanted, BackfillEnd(now=True, offsets={}), job.log, Silent())
        job.log.close()
    assert made[1] == made[0]
    assert sum(made[0][1], Counter())


def test_the_guide_has_the_table() -> None:
    """Each row of the guide says in which modes a test has compared it."""
    guide = (Path(__file__).parents[3] / "docs" / "guides" / "backfill.md").read_text()
    for row in ROWS:
        cells = ["yes" if mode in row.modes else "backfill" for mode in ("aligned", "deterministic")]
        assert f"| {row.what} | {' | '.join(cells)} |" in guide
