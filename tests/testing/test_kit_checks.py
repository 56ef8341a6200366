"""Crashes behind each step, and replays: what the kit's checks find, and that they let careful tasks pass."""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from grete import Job
from grete.errors import ConfigError
from grete.settings import Settings
from grete.testing import Kit
from grete.testing.crash_check import ScriptRun, check_crashes
from tests.testing.jobs import (
    Count,
    Forgetful,
    Numbering,
    Split,
    aligned,
    deterministic,
    forgetful,
    lines,
    totals,
    unordered,
)

TEXT = ("a b", "b c", "a")
ONE_BY_ONE = Settings(batch_bytes_max=1, frame_bytes_max=1)


def fed(job: Job, *, partitions: int = 1, settings: Settings | None = None) -> Kit:
    """Return a kit that was fed the text, with time between its lines."""
    kit = Kit(job, partitions=partitions, settings=settings)
    for text in TEXT:
        kit.feed(lines, text, text)
        kit.advance(300)
    return kit


def test_a_step_is_the_least_between_two_crashes() -> None:
    """Steps go from record to record where a batch is one; nothing is committed, and then nothing is left to do."""
    kit = Kit(Job("splitting", stages=[Split, Count]), settings=ONE_BY_ONE)
    kit.run()
    for text in TEXT:
        kit.feed(lines, "k", text)
    before, seen = kit.steps, []
    while (task := kit.step()) is not None:
        seen.append((task, kit.counters["records"]))
    assert kit.steps - before == len(seen)
    assert {task for task, _ in seen} == {"split-0", "count-0"}
    assert [after - now for (_, now), (_, after) in pairwise(seen) if after - now > 1] == []
    assert kit.pairs(totals) == []
    kit.run()
    assert kit.state(Count.counts) == {"a": 2, "b": 2, "c": 1}


def test_steps_and_process_take_the_same_way() -> None:
    """A crash that is planned for a step meets the task that takes it, whether it is taken by ``step`` or with all."""
    kit = fed(aligned)
    taken = [kit.step() for _ in range(kit.steps)]
    assert taken == [None] * len(taken)
    kit.feed(lines, "k", "d e")
    third = [kit.step() for _ in range(3)][2]
    other = fed(aligned)
    other.feed(lines, "k", "d e")
    other.crash_at(3)
    other.run()
    assert other.crashed == [third]
    assert other.state(Count.counts) == {"a": 2, "b": 2, "c": 1, "d": 1, "e": 1}


def test_a_task_that_dies_between_two_steps_is_started_by_the_next() -> None:
    """The next step does not do the rest of the dead process's round."""
    kit = fed(aligned)
    kit.feed(lines, "k", "a")
    task = kit.step()
    assert task == "split-0"
    kit.crash(Split, other_host=True)
    while kit.step() is not None:
        pass
    kit.run()
    assert kit.state(Count.counts)["a"] == 3
    assert kit.counters["restores"] == 1


@pytest.mark.parametrize("job", [aligned, deterministic], ids=["aligned", "deterministic"])
def test_a_crash_behind_any_step_changes_nothing(job: Job) -> None:
    """Each step of each task, with its disk and without, in both modes: outputs and state are those of no crash."""
    kit = fed(job, partitions=2)
    tried = kit.check_crashes(at_most=40)
    assert tried == 40
    assert kit.crashed == []  # the kit itself is as it was


def test_all_steps_of_a_small_run_are_tried() -> None:
    """Both ways to die, behind each step; the bound is a bound."""
    kit = Kit(Job("alone", stages=[Forgetful]))
    kit.feed(lines, "k", "a")
    tried = kit.check_crashes(at_most=1_000)
    assert tried % 2 == 0
    assert 10 < tried < 100
    assert kit.check_crashes(at_most=7) == 7


@pytest.mark.parametrize(
    ("at_most", "places"),
    [
        (6, [(1, False), (1, True), (2, False), (2, True), (3, False), (3, True)]),
        (3, [(1, False), (2, True), (3, False)]),
    ],
)
def test_each_step_is_tried_with_the_disk_and_without(at_most: int, places: list[tuple[int, bool]]) -> None:
    """Some mistakes show with an empty disk only; of many steps some are tried, and both ways to die."""
    crashes = []

    def play(step: int, other_host: bool) -> ScriptRun:
        crashes.append((step, other_host))
        return ScriptRun("the result", 3, ["forgetful-0"])

    assert check_crashes(play, at_most, Job("alone", stages=[Forgetful])) == at_most
    assert [crash for crash in crashes if crash[0]] == places  # without a crash twice, to compare


def test_an_attribute_that_counts_is_found() -> None:
    """The error names the crash, the task and the outputs that differ; the crash shows them again."""
    kit = Kit(Job("forgetful", stages=[Forgetful]))
    for _ in range(2):
        kit.feed(lines, "k", "a")
        kit.advance(300)
    with pytest.raises(AssertionError, match=r"(?s)with crash_at\((\d+)\), which kills forgetful-0.*-.*'a': 2") as told:
        kit.check_crashes()
    step = int(str(told.value).partition("crash_at(")[2].partition(")")[0])
    again = Kit(kit.job, settings=ONE_BY_ONE)
    again.crash_at(step)
    again.play(kit.script)
    again.run()
    assert again.pairs(totals) == [("a", 1), ("a", 1)]


def test_a_test_may_say_what_must_not_change() -> None:
    """Only the named results are compared, so that others, such as numbers of an order, may differ."""
    kit = Kit(Job("forgetful", stages=[Forgetful]))
    kit.feed(lines, "k", "a")
    kit.advance(300)
    kit.feed(lines, "k", "a")
    assert kit.check_crashes(lambda kit: [word for word, _ in kit.pairs(totals)], at_most=20) == 20
    with pytest.raises(AssertionError, match=r"first: \[1, 2\]\nthen:  \[1, 1\]"):
        kit.check_crashes(lambda kit: [n for _, n in kit.pairs(totals)])


def test_code_that_no_crash_can_be_compared_for_is_told() -> None:
    """It differs without a crash: that is said, and no crash is blamed."""
    kit = Kit(Job("numbering", stages=[Numbering]))
    kit.feed(lines, "k", "a")
    with pytest.raises(AssertionError, match="two runs of the same feed without a crash differ"):
        kit.check_crashes()


def test_a_crash_that_lies_behind_is_refused() -> None:
    """The next step is 1."""
    with pytest.raises(ConfigError, match="step 0 is over; the next one is 1"):
        Kit(aligned).crash_at(0)


def test_a_deterministic_job_is_the_same_again() -> None:
    """From its begin, from later checkpoints and in another process, with another number of partitions, too."""
    kit = fed(deterministic, partitions=2)
    assert kit.check_determinism() >= 5


@pytest.mark.parametrize(
    ("job", "told"),
    [
        (
            forgetful,
            r"a replay from checkpoint \d+ does not make the same outputs again\nfirst difference: totals\[0\]",
        ),
        (unordered, r"a replay in another process does not make the same outputs again\nfirst difference: totals\[0\]"),
    ],
    ids=["attribute", "set"],
)
def test_what_depends_on_more_than_records_and_stores_is_found(job: Job, told: str) -> None:
    """An attribute, by a replay that begins later; the order of a set, by a process with other hashes."""
    kit = Kit(job)
    for _ in range(3):
        kit.feed(lines, "k", "a" if job is forgetful else " ".join(map(str, range(40))))
        kit.advance(300)
    with pytest.raises(AssertionError, match=told):
        kit.check_determinism()


def test_a_check_of_determinism_says_what_it_needs() -> None:
    """A stage in deterministic mode, and a name by which another process finds the job."""
    with pytest.raises(ConfigError, match="no deterministic stage"):
        fed(aligned).check_determinism()
    with pytest.raises(ConfigError, match="give it a name in a module"):
        fed(Job("unnamed", stages=[Forgetful], mode="deterministic")).check_determinism()


def test_a_check_at_the_import_of_a_module_does_not_start_itself_without_end(tmp_path: Path) -> None:
    """The other process imports the job: a script that checks where it is imported is told to move the check."""
    script = tmp_path / "script.py"
    code = "from grete.testing import Kit\nfrom grete import Job\nfrom tests.testing.jobs import Split, Count, lines\n"
    code += (
        "job = Job('mine', stages=[Split, Count], mode='deterministic')\nkit = Kit(job)\nkit.feed(lines, 'k', 'a')\n"
    )
    script.write_text(code + "kit.check_determinism()\n", "utf-8")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "checks its determinism when it is imported" in done.stderr
    script.write_text(code + "if __name__ == '__main__':\n    print(kit.check_determinism())\n", "utf-8")
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) > 0
