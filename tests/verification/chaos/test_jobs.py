"""Random jobs in short: two of them under troubles and an upgrade, and a recount that notices each damage."""

from pathlib import Path

import pytest

from tests.verification.chaos.jobs import run
from tests.verification.chaos.random_job import Amount, Recount, Total, drawn, job_of


@pytest.mark.chaos
@pytest.mark.timeout(600)  # starts of workers, on a machine that has other tests to run
@pytest.mark.parametrize("seed", [pytest.param(2, marks=pytest.mark.prove), 11])
def test_a_random_job_comes_out_as_its_recount(tmp_path: Path, seed: int) -> None:
    """Outputs, files and states are the recount's, through kills, freezes, old disks, a locked log and an upgrade."""
    ran = run(seed, tmp_path / "drawn", records=240)
    assert ran.wrong == []
    assert ran.faults["graceful stops"] == 2
    assert ran.faults["log locked"] >= 2
    assert ran.faults.total() > 2


@pytest.mark.chaos
@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_a_random_job_on_a_broker_that_is_killed_and_frozen(tmp_path: Path) -> None:
    """The same on Kafka: the one broker is away again and again, among the other troubles."""
    ran = run(5, tmp_path / "drawn", records=240, log="kafka")
    assert ran.wrong == []
    assert min(ran.faults["broker killed"], ran.faults["broker frozen"]) > 0


def test_seeds_draw_different_jobs_of_both_modes() -> None:
    """A seed is the same job each time; among some there are both modes, files, and one to three stages."""
    shapes = [drawn(seed) for seed in range(40)]
    assert shapes == [drawn(seed) for seed in range(40)]
    assert {shape.deterministic for shape in shapes} == {shape.files for shape in shapes} == {True, False}
    assert {shape.stages for shape in shapes} == {shape.partitions for shape in shapes} == {1, 2, 3}


def test_the_second_build_only_adds_a_stage(tmp_path: Path) -> None:
    """It has the stages of the first one, in their order, and one more behind them."""
    first, second = (job_of(2, build, tmp_path) for build in (1, 2))
    assert [stage.name for stage in second.stages] == [*(stage.name for stage in first.stages), "again"]


def test_the_recount_notices_each_damage() -> None:
    """A step that is missing, there twice, of another amount, or of a record that was counted twice."""
    shape = drawn(2)._replace(stages=1)
    recount = Recount(shape)
    recount.feed([("a1", Amount(0, 5)), ("a1", Amount(1, 7))])
    right = [Total(1, 5, 0), Total(2, 12, 1)]
    assert recount.check_steps("topic", {"a1": right}) == []
    assert recount.totals(0) == {"a1": (2, 12)}
    for wrong, text in (
        (right[:1], "steps [1], not 1 to 2"),
        ([*right, right[1]], "steps [1, 2, 2], not 1 to 2"),
        ([right[0], Total(2, 13, 1)], "other amounts"),
        ([right[0], Total(2, 12, 0)], "a record twice"),
    ):
        assert text in " ".join(recount.check_steps("topic", {"a1": wrong}))
    assert "steps [1], not 1 to 0" in " ".join(recount.check_steps("topic", {"a1": right, "b": right[:1]}))
