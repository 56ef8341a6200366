"""The fixtures that a user's tests get: kits that are closed, texts that a flag writes, a broker's address."""

from pathlib import Path

import pytest

from grete import pytest_plugin
from grete.logs.address import LogAddress, open_reader

JOB = """
from grete import Input, Job, Output, Record, Task, Topic, utf8

lines = Topic("lines", key=utf8, value=utf8)
loud = Topic("loud", key=utf8, value=utf8)

class Shout(Task):
    lines = Input(lines)
    out = Output(loud)

    def process(self, record: Record[str, str]) -> None:
        self.out.send(record.key, record.value.upper())

job = Job("shouting", stages=[Shout])
"""
TEST = """
import pytest
from shouting import job, lines

made = []

@pytest.mark.parametrize("text", ["a", "b c"])
def test_shouts(grete_kit, grete_expected, text):
    kit = grete_kit(job, partitions=2)
    made.append(kit)
    kit.feed(lines, "k", text, timestamp=0)
    kit.run()
    grete_expected(kit.text())
    kit.feed(lines, "k", "later", timestamp=1)
    kit.run()
    grete_expected(kit.text())

def test_they_are_closed():
    assert [task.process for kit in made for task in kit._tasks.values()] == [None] * 4
"""
ARGUMENTS = ("-p", "grete.pytest_plugin", "-p", "no:cacheprovider", "-q")


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A job and its test."""
    pytester.makepyfile(shouting=JOB, test_shouting=TEST)
    return pytester


def test_a_text_is_written_by_the_flag_and_compared_without(project: pytest.Pytester) -> None:
    """First there is none, which is told; then it is as written; then the lines that differ are shown."""
    missing = project.runpytest_inprocess(*ARGUMENTS)
    missing.assert_outcomes(failed=2, passed=1)
    missing.stdout.fnmatch_lines(["*there is no *test_shouts-a.txt: run pytest --grete-update*"])
    project.runpytest_inprocess(*ARGUMENTS, "--grete-update").assert_outcomes(passed=3)
    project.runpytest_inprocess(*ARGUMENTS).assert_outcomes(passed=3)
    folder = project.path / "expected" / "test_shouting"
    names = ["test_shouts-a-2.txt", "test_shouts-a.txt", "test_shouts-b-c-2.txt", "test_shouts-b-c.txt"]
    assert sorted(path.name for path in folder.iterdir()) == names
    text = (folder / "test_shouts-a.txt").read_text("utf-8")
    assert "  1970-01-01T00:00:00.000Z  'k': 'A'\n" in text
    (folder / "test_shouts-a.txt").write_text(text.replace("'A'", "'a'"), "utf-8")
    changed = project.runpytest_inprocess(*ARGUMENTS)
    changed.assert_outcomes(failed=1, passed=2)
    changed.stdout.fnmatch_lines(["*if it is right, run pytest --grete-update", "*-*'k': 'a'", "*+*'k': 'A'"])


def test_the_plugin_is_listed_as_pytest_shows_it(project: pytest.Pytester) -> None:
    """Fixtures have a line that says what they are, and the flag is in the help."""
    listed = project.runpytest_inprocess(*ARGUMENTS, "--fixtures")
    listed.stdout.fnmatch_lines(["grete_kit*", "*each kit is closed*", "grete_expected*", "grete_kafka*"])
    project.runpytest_inprocess(*ARGUMENTS, "--help").stdout.fnmatch_lines([f"*{pytest_plugin.UPDATE}*"])


@pytest.mark.kafka
def test_a_broker_is_had_by_name(grete_kafka: str, tmp_path: Path) -> None:
    """The address is one that a log takes, and a broker answers there."""
    log = open_reader(LogAddress(grete_kafka, None), tmp_path / "log.db")
    try:
        assert log.partitions("no-such-topic-of-ours") is None
    finally:
        log.close()
