"""docs/guides/spark.md and changes.md do what they say."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from grete.job.directory import JobDirectory
from grete.job.topics import create_topics
from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.worker.supervisor.local_job import LocalJob
from tasks.word_count import job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


@pytest.mark.spark
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(("page", "count"), [("spark", 3), ("changes", 3)])
def test_the_code_of_the_page_runs(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str, count: int
) -> None:
    """Block after block, beside a job that has run; its assertions are the test's."""
    monkeypatch.chdir(tmp_path)
    job_directory = JobDirectory(Path(".grete") / job.name)
    log = EmbeddedLog(job_directory.directory / "log.db")
    create_topics(job, log)
    log.produce_with_meta([ExternalRecord(TopicPartition("sentences", 0), None, b"to be or not to be", 1)], {})
    with LocalJob(job, "tasks.word_count", job_directory, Settings(checkpoint_interval_ms=50)) as local:
        ends = local.ends()
        while not local.drained(ends):
            local.poll(20)
        local.stop()
    blocks = re.findall(r"^```python\n(.*?)^```", page_text(page), re.MULTILINE | re.DOTALL)
    assert len(blocks) == count
    names: dict[str, object] = {}
    directory = str(job_directory.directory.absolute())  # the session of the tests was started in another one
    for block in blocks:
        there = block.replace('(job="tasks.word_count"', f'(directory={directory!r}, job="tasks.word_count"')
        for own in ("offsets", "changes", "offsets-of-totals", "totals"):
            there = there.replace(f'"{own}")', f'"{tmp_path / own}")')
        exec(there.replace('{"job":', f'{{"directory": {directory!r}, "job":'), names)
    assert names["spark"] is spark
    log.close()


def page_text(name: str) -> str:
    """Return a guide."""
    return (ROOT / "docs" / "guides" / f"{name}.md").read_text("utf-8")


@pytest.mark.parametrize(("page", "least"), [("spark", 8), ("changes", 6)])
def test_the_tests_that_the_page_names_are_there(page: str, least: int) -> None:
    """Each test that the page names exists."""
    known = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)
    }
    named = set(re.findall(r"`(test_\w+)`", page_text(page)))
    assert len(named) >= least
    assert named <= known
