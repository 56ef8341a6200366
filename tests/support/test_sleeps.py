"""A test waits for an event, by ``waiting.py``, not for a time: where something sleeps, it is written here why."""

import ast
from pathlib import Path

import pytest

pytestmark = pytest.mark.check  # reads all sources of tests: a change is looked at before it is sent

ROOT = Path(__file__).parents[2]
TOOL = "the loop of a tool, which looks at processes while they work"
SPARK = "in a driver or an executor of Spark, which has no pytest; a cluster takes minutes"
PACE = "what is given, or a time that goes by while something is away, is part of the experiment"
# Module → its calls of time.sleep, and why they are there. It only becomes shorter.
SLEEPS = {
    "tests/event_time/gated_burst.py": (1, "the code of a job: it is held there until the test lets it go on"),
    "tests/logs/leader_change_prove.py": (2, PACE),
    "tests/sinks/late_end_prove.py": (1, PACE),
    "tests/sinks/lossy_prove.py": (1, PACE),
    "tests/sinks/test_kafka_sink.py": (1, "what is seen at the end of the time is compared, whatever it is"),
    "tests/spark/cluster.py": (1, SPARK),
    "tests/spark/cluster_moves.py": (2, SPARK),
    "tests/spark/cluster_scenes.py": (1, SPARK),
    "tests/spark/format/test_change_stream.py": (1, SPARK),
    "tests/spark/killed_reading.py": (1, SPARK),
    "tests/spark/moving/killed_driver.py": (2, SPARK),
    "tests/spark/troubles.py": (1, SPARK),
    "tests/suite/repeat.py": (1, "the load of the last minute falls by itself"),
    "tests/support/broken_jobs.py": (1, "a job that takes a minute, as a slow one does"),
    "tests/support/waiting.py": (1, "the one place at which a wait lets others go on"),
    "tests/upgrade/make_stored.py": (2, "a script that older builds run, without our tests"),
    "tests/verification/chaos/campaign.py": (3, TOOL),
    "tests/verification/chaos/dead_leaders.py": (2, PACE),
    "tests/verification/chaos/kills.py": (1, TOOL),
    "tests/verification/chaos/zygote.py": (1, TOOL),
    "tests/verification/machines/assigner.py": (1, TOOL),
    "tests/verification/machines/machine.py": (2, TOOL),
    "tests/verification/machines/members.py": (1, TOOL),
    "tests/verification/machines/takeovers.py": (1, TOOL),
    "tests/worker/outage_prove.py": (1, PACE),
    "tests/worker/test_members_client.py": (1, "a broker that is played waits for messages as the real one does"),
}


def sleeps_in(text: str) -> int:
    """Return the number of calls of ``time.sleep`` in a module, by any name; code in its strings is that of a job."""
    if "sleep" not in text:
        return 0
    tree = ast.parse(text)
    named = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "time"
        for alias in node.names
        if alias.name == "sleep"
    }
    calls = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return sum(call == "time.sleep" or call in named for call in calls)


def test_what_sleeps_has_its_reason() -> None:
    """A sleep is too short beside other work, or too long alone: each module has as many as it had."""
    modules = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in ROOT.glob("tests/**/*.py")}
    assert {name: count for name, text in modules.items() if (count := sleeps_in(text))} == {
        name: count for name, (count, _) in SLEEPS.items()
    }


def test_a_sleep_is_found() -> None:
    """By the module's name or its own; not in a string, and not another's."""
    text = (
        'import time\nfrom time import sleep as rest\ntime.sleep(1)\nrest(2)\nJOB = "time.sleep(3)"\nclock.sleep(4)\n'
    )
    assert sleeps_in(text) == 2
    assert sleeps_in("import time\n") == 0
