"""Spark reads and writes by the job's definition, and executors have the ids of its state."""

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from grete.api.jobs.definition import define, encode_definition
from grete.api.jobs.versions import FIRST, NEWEST
from grete.errors import ConfigError
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.spark.backfill.run.executor import _job_of
from grete.spark.format.columns import key_column
from grete.spark.format.options import LogSpec, Options, find_store, know_serdes, read_options
from grete.spark.format.sources import ChangelogSource
from grete.spark.format.writer import state_writer
from grete.state.pins.prepare import prepare
from grete.state.pins.unbound import BEFORE
from tests.cli.changed_shop import code


def test_a_changed_serde_is_refused_before_anything_is_claimed(tmp_path: Path) -> None:
    """By the writer and by the reader."""
    job = load_job(code(tmp_path, name="first"))
    job_directory = JobDirectory(tmp_path / "job")
    log = job_directory.open_log()
    metadata = prepare(job, log, job_directory, Settings())
    metadata.produce_with_meta([], {BEFORE: None})  # it binds, as code that has committed something
    ends = {topic: log.bounds(TopicPartition(topic, 0)) for topic in log.topics()}
    changed = code(tmp_path, ('"counts", key=utf8', '"counts", key=json(str)'))
    options = {"job": changed, "directory": str(job_directory.directory), "store": "counts"}
    with pytest.raises(ConfigError, match=r"store total/counts: its key was utf8 and is json\(str\)"):
        state_writer(read_options(options, "changelog", {"store"}), None, overwrite=False)
    with pytest.raises(ConfigError, match="its key was utf8"):
        ChangelogSource(options).reader(None).partitions()
    assert {topic: log.bounds(TopicPartition(topic, 0)) for topic in log.topics()} == ends
    log.close()


def test_executors_write_under_the_ids_of_the_state(tmp_path: Path) -> None:
    """They load the code themselves, and it may declare a new store before a window."""
    definition = encode_definition(define(load_job(code(tmp_path, name="first")), {"totals": 1}))
    more = ("    years = Tumbling", '    items = Store("items", key=utf8, value=utf8)\n    years = Tumbling')
    changed = code(tmp_path, more)
    assert _job_of(changed, b"", ()).stages[0].store_ids()["years"] == 14
    assert _job_of(changed, definition, ()).stages[0].store_ids()["years"] == 13
    assert _job_of(changed, definition, ()).stages[0].store_ids()["items"] == 14


def test_executors_write_by_the_version_of_the_job(tmp_path: Path) -> None:
    """A job that began with version 1 of the serdes has its stores built by that."""
    reference = code(tmp_path, ('"counts", key=utf8', '"counts", key=json(float)'))
    job = load_job(reference)
    job.write_by(FIRST)
    for definition, key in ((b"", b"5"), (encode_definition(define(job, {})), b"5.0")):
        found = _job_of(reference, definition, ())
        assert (
            next(store for store in found.stage("total").all_stores() if store.name == "counts").key.encode(5.0) == key
        )


def test_keys_from_a_table_are_written_as_the_job_writes_them(tmp_path: Path) -> None:
    """A key from a DataFrame gets the job's spelling: else neither a task nor Spark would find it."""
    job = load_job(reference := code(tmp_path, ('"counts", key=utf8', '"counts", key=json(float)')))
    for version, cells in ((NEWEST, [b"5", b"5", b"0", None]), (FIRST, [b"5.0", b"5.0", b"-0.0", None])):
        job.write_by(version)
        stage, store = find_store(Options(job, LogSpec("embedded", "", ""), {"store": "counts"}))
        found = key_column(reference, job, stage.name, store)
        assert found.cells(pa.array(["5.0", "5.0", "-0.0", None])) == cells
        assert pickle.loads(pickle.dumps(found)) == found  # our own


def test_spark_knows_the_version_before_a_write(tmp_path: Path) -> None:
    """A job that has not run has the newest; any other the one that it has pinned."""
    job = load_job(reference := code(tmp_path, ('"counts", key=utf8', '"counts", key=json(float)')))
    job_directory = JobDirectory(tmp_path / "job")
    options = {"job": reference, "directory": str(job_directory.directory), "store": "counts"}
    know_serdes(read := read_options(options, "changelog", {"store"}))
    assert read.job.serdes == NEWEST
    log = job_directory.open_log()
    prepare(job, log, job_directory, Settings())
    job.write_by(FIRST)
    log.open_metadata(job.name).produce_with_meta([], {"definition": encode_definition(define(job, {}))})
    log.close()
    know_serdes(read)
    assert read.job.serdes == FIRST
