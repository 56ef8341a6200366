"""What Spark reads and writes fits the definition of the job, and executors have the ids that its state has."""

from pathlib import Path

import pytest

from grete.api.definition import define, encode_definition
from grete.errors import ConfigError
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.spark.backfill.executor import _job_of
from grete.spark.format.options import read_options
from grete.spark.format.sources import ChangelogSource
from grete.spark.format.writer import state_writer
from grete.state.prepare import prepare
from tests.cli.changed_shop import code


def test_a_changed_serde_is_refused_before_anything_is_claimed(tmp_path: Path) -> None:
    """By the writer and by the reader."""
    job = load_job(code(tmp_path, name="first"))
    job_directory = JobDirectory(tmp_path / "job")
    log = job_directory.open_log()
    prepare(job, log, job_directory, Settings())
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
