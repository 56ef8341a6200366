"""The advice of each halt is followed here, or in a test that the table names, and the job continues."""

import re
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from grete.errors import Halted
from grete.feeds.spool import Spool
from grete.halts import HaltCode
from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.stores.rocksdb.store import CHANGELOG_POSITION
from tests.cli.test_state_commands import grete

ROOT = Path(__file__).parents[2]
ANOTHER_NAME = "tests/cli/test_halt_ways.py::test_under_another_name_a_job_reads_its_inputs_again"
PUT_BACK_LOG = "tests/execution/test_put_back.py::test_a_log_that_is_put_back_goes_on"
BOUNDS = "tests/cli/test_halt_ways.py::test_a_bound_that_was_too_low_is_raised"
PUT_BACK = (
    "tests/execution/deterministic/test_early_sinks.py::test_an_account_that_something_else_has_changed_is_put_back"
)
WAYS = {  # the test that takes the way that a code names
    HaltCode.UNNAMED: "tests/cli/test_halt_ways.py::test_what_the_text_of_a_halt_says_is_done",
    HaltCode.CONFIGURATION: "tests/cli/test_taken_back.py::test_code_that_has_committed_nothing_is_taken_back",
    HaltCode.GIVEN_UP: "tests/cli/test_halt_ways.py::test_code_that_is_repaired_goes_on",
    HaltCode.STATE_TOO_LARGE: BOUNDS,
    HaltCode.OUTPUT_TOO_LARGE: BOUNDS,
    HaltCode.RECORD_REFUSED: "tests/logs/test_kafka_refusals.py::test_a_value_that_is_too_large_names_store_and_key",
    HaltCode.LOG_LOST: PUT_BACK_LOG,
    HaltCode.LOG_WENT_BACK: PUT_BACK_LOG,
    HaltCode.CHANGELOG_DAMAGED: PUT_BACK_LOG,
    HaltCode.CHANGELOG_GONE: PUT_BACK_LOG,
    HaltCode.STREAM_DAMAGED: PUT_BACK_LOG,
    HaltCode.INPUT_GONE: ANOTHER_NAME,
    HaltCode.INPUT_CHANGED: PUT_BACK_LOG,
    HaltCode.TOPIC_REPLACED: "tests/logs/test_kafka_topics.py::test_a_topic_created_again_halts_the_next_start",
    HaltCode.TOPIC_GREW: "tests/cli/test_state_commands.py::test_a_job_is_rescaled_and_goes_on",
    HaltCode.LOG_FILE_DAMAGED: "tests/cli/test_halt_ways.py::test_a_directory_that_is_deleted_starts_over",
    HaltCode.SPOOL_DAMAGED: "tests/cli/test_halt_ways.py::test_a_spool_that_was_moved_away_begins_again",
    HaltCode.BULK_WRITE_IN_DOUBT: "tests/spark/backfill/test_backfill.py::test_a_backfill_whose_driver_is_killed_"
    "before_the_outcome_is_settled",
    HaltCode.TRIMMED_WHILE_READ: "tests/spark/format/test_frame_reader.py::test_what_was_trimmed_while_it_was_read_is_"
    "read_again",
    HaltCode.BACKFILL_INCOMPLETE: "tests/spark/backfill/test_backfill.py::test_a_backfill_whose_driver_is_killed_is_"
    "run_again",
    HaltCode.METADATA_DAMAGED: "tests/cli/test_damaged_bytes.py::test_a_job_whose_metadata_is_put_back_goes_on",
    HaltCode.BYTES_DAMAGED: "tests/cli/test_halt_ways.py::test_a_store_that_something_else_wrote_to_is_restored",
    HaltCode.MISPLACED_KEYS: "tests/cli/test_kafka_partitioners.py::test_the_default_of_confluent_kafka_is_pinned_and_"
    "another_producer_halts",
    HaltCode.NOT_DETERMINISTIC: "tests/cli/test_taken_back.py::test_the_way_back_that_a_halt_names_works",
    HaltCode.SINK_REFUSES: "tests/sinks/test_sqlite.py::test_a_row_that_is_refused_halts_and_is_named_and_nothing_of_"
    "its_checkpoint_shows",
    HaltCode.SINK_ACCOUNT_GONE: PUT_BACK,
    HaltCode.SINK_OF_ANOTHER_JOB: "tests/sinks/test_shared_folder.py::test_a_second_job_is_refused_and_its_outputs_"
    "come_once_it_may_write",
    HaltCode.SINK_CHANGED: PUT_BACK,
    HaltCode.SINK_WENT_BACK: "tests/sinks/test_sqlite.py::test_a_database_that_lost_what_was_applied_is_noticed",
    HaltCode.TRANSACTION_SPLIT: "tests/logs/test_kafka_endings.py::test_a_transaction_that_was_split_halts",
}
JOB = """
from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8

class Count(Task):
    lines = Input(Topic("lines", key=utf8, value=utf8))
    counts = Store("counts", key=utf8, value=int64)
    out = Output(Topic("counted", key=utf8, value=utf8))

    def process(self, record: Record[str, str]) -> None:
        n = self.counts.get(record.value, 0) + 1
        self.counts.put(record.value, n)
        self.out.send(record.value, record.value)

job = Job("count", stages=[Count])
"""
SOON = "--set=restarts_max=1", "--set=restart_backoff_ms=1"


class Scene:
    """The job in a folder, and what is run of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "lines.txt").write_text("".join(f"{number}{'x' * 100}\n" for number in range(40)))

    def code(self, old: str = "", new: str = "") -> str:
        """Write the job, with other words in it; return its path."""
        (self.folder / "count.py").write_text(JOB.replace(old, new))
        return str(self.folder / "count.py")

    def run(self, reference: str, *options: str, directory: str = "job", fails: type[Halted] | None = None) -> str:
        """Run it over the lines, which a directory gets with its first run."""
        begins = not (self.folder / directory).exists()
        given = [f"--input=lines={self.folder / 'lines.txt'}"] if begins else []
        return grete("run", reference, *given, f"--directory={self.folder / directory}", *options, fails=fails)

    def counted(self, reference: str, directory: str = "job") -> list[str]:
        """Return the counts."""
        told = grete("state", "scan", reference, "counts", f"--directory={self.folder / directory}")
        return [line.rpartition("\t")[2] for line in told.splitlines()]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Return the job in an empty folder."""
    return Scene(tmp_path)


def test_each_code_names_the_test_of_its_way() -> None:
    """A new code needs a row, and a test that it names has to be there."""
    assert {*WAYS} == {*HaltCode}
    for code, way in WAYS.items():
        path, _, name = way.partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE), code


def test_a_bound_that_was_too_low_is_raised(scene: Scene) -> None:
    """For outputs, then for state: the records are processed again under the new bound, each once."""
    low = "--set=batch_bytes_max=500", "--set=uncommitted_state_bytes_max=2000", "--set=checkpoint_interval_ms=60000"
    assert "GRETE-H004" in scene.run(scene.code("self.counts.put(", "print("), *low, *SOON, fails=Halted)
    much = scene.code("self.counts.put(record.value, n)", "[self.counts.put(record.value[:m], m) for m in range(103)]")
    assert "GRETE-H003" in scene.run(much, *low, *SOON, fails=Halted)
    whole = scene.code()
    scene.run(whole)
    assert scene.counted(whole) == ["1"] * 40


def test_code_that_is_repaired_goes_on(scene: Scene) -> None:
    """A worker that was given up starts with the repaired code, and each record counts once."""
    broken = scene.code("        n = ", '        assert not record.value.startswith("20x")\n        n = ')
    assert "GRETE-H002" in scene.run(broken, *SOON, fails=Halted)
    repaired = scene.code()
    scene.run(repaired)
    assert scene.counted(repaired) == ["1"] * 40


def test_what_the_text_of_a_halt_says_is_done(scene: Scene) -> None:
    """A halt of the user's own has no code, and what it says is the way: then each record counts once."""
    off = scene.code(
        "        n = ",
        "        from grete.errors import Halted\n"
        '        if record.value.startswith("20x"):\n'
        '            raise Halted("the meter is off: switch it on")\n'
        "        n = ",
    )
    said = scene.run(off, *SOON, fails=Halted)
    assert "the meter is off: switch it on" in said
    assert "GRETE-H" not in said
    on = scene.code()
    scene.run(on)
    assert scene.counted(on) == ["1"] * 40


def test_a_store_that_something_else_wrote_to_is_restored(scene: Scene) -> None:
    """The changelog is well; without its folder of state the job goes on, and each record counts once."""
    reference = scene.code()
    scene.run(reference)
    state = scene.folder / "job" / "state"
    families = {name: Options(raw_mode=True) for name in Rdict.list_cf(str(state / "count-0"))}
    store = Rdict(str(state / "count-0"), Options(raw_mode=True), families)
    store[CHANGELOG_POSITION] = b"not ours"
    store.close()
    said = scene.run(reference, *SOON, fails=Halted)
    assert "GRETE-H025: what was read cannot be decoded: changelog position: 8 bytes, need 36" in said
    assert "delete the folder `state`" in said
    assert grete("changelog", "verify", reference, f"--directory={scene.folder / 'job'}").startswith("count-0\tok")
    shutil.rmtree(state)
    scene.run(reference)
    assert scene.counted(reference) == ["1"] * 40


def test_under_another_name_a_job_reads_its_inputs_again(scene: Scene) -> None:
    """Its input was trimmed: under the old name it halts, under another one it begins with its first record."""
    first = scene.code()
    scene.run(first)
    with closing(EmbeddedLog(scene.folder / "job" / "log.db")) as log:
        lines = TopicPartition("lines", 0)
        log.produce_with_meta([ExternalRecord(lines, b"", b"more", 1)] * 2, {})
        log.trim(lines, log.bounds(lines)[1])
    assert "GRETE-H015" in scene.run(first, *SOON, fails=Halted)
    second = scene.code('Job("count"', 'Job("counted-again"')
    scene.run(second, directory="second")
    assert scene.counted(second, "second") == ["1"] * 40


def test_a_directory_that_is_deleted_starts_over(scene: Scene) -> None:
    """The file of an embedded log is damaged: another directory begins with the inputs."""
    reference = scene.code()
    scene.run(reference)
    log = scene.folder / "job" / "log.db"
    log.write_bytes(log.read_bytes()[:4096] + b"\xff" * 20_000)
    grete("run", reference, f"--directory={scene.folder / 'job'}", fails=Halted)
    (scene.folder / "job").rename(scene.folder / "away")
    scene.run(reference)
    assert scene.counted(reference) == ["1"] * 40


def test_a_spool_that_was_moved_away_begins_again(tmp_path: Path) -> None:
    """A new spool takes records; the records in the damaged one are not in the log."""
    (tmp_path / "t.db").write_bytes(b"no database" * 1_000)
    with pytest.raises(Halted, match="GRETE-H020"):
        Spool(tmp_path / "t.db", "t", 1 << 20)
    (tmp_path / "t.db").rename(tmp_path / "away")
    Spool(tmp_path / "t.db", "t", 1 << 20).close()
