"""Modes of a job and its stages: what may be joined is checked when the job is built (D6)."""

from typing import ClassVar

import pytest

from grete import Input, Job, Output, Record, Task, Topic, utf8
from grete.api.tasks.mode import Mode
from grete.errors import GraphError

first = Topic("first", key=utf8, value=utf8)
second = Topic("second", key=utf8, value=utf8)
third = Topic("third", key=utf8, value=utf8)


class Takes(Task):
    source = Input(first)
    out = Output(second)

    def process(self, record: Record[str, str]) -> None:
        """Do nothing."""


class Makes(Task):
    source = Input(second)
    out = Output(third)

    def process(self, record: Record[str, str]) -> None:
        """Do nothing."""


class DeterministicMakes(Makes):
    mode: ClassVar[Mode] = "deterministic"


class DeterministicTakes(Takes):
    mode: ClassVar[Mode] = "deterministic"


class Both(Makes):
    more = Input(Topic("outside", key=utf8, value=utf8))


class Ends(Task):
    mode: ClassVar[Mode] = "deterministic"
    source = Input(third)

    def process(self, record: Record[str, str]) -> None:
        """Do nothing."""


class Batches(Task):
    source = Input(second)

    def process_batch(self, records: list[Record[str, str]]) -> None:
        """Do nothing."""


class TakesBatches(Task):
    source = Input(first)

    def process_batch(self, records: list[Record[str, str]]) -> None:
        """Do nothing."""


def test_a_stage_has_the_jobs_mode_unless_it_says_otherwise() -> None:
    """The mode of a stage is its own class attribute, else the job's; the log notes them all."""
    assert Job("job", [Takes, Makes]).modes == "aligned"
    assert Job("job", [Takes, Makes], mode="deterministic").modes == "deterministic"
    assert Job("job", [DeterministicTakes, DeterministicMakes]).modes == "deterministic"


def test_a_deterministic_stage_after_one_that_is_not_is_refused() -> None:
    """D6: what an aligned stage repeats after a crash may differ."""
    with pytest.raises(GraphError, match="reads what stage 'takes' writes, which is not"):
        Job("job", [Takes, DeterministicMakes])


def test_an_aligned_stage_may_follow_a_deterministic_one() -> None:
    """A2b: what a deterministic stage has sent is never taken back. The stage may read a topic from outside, too."""
    job = Job("job", [DeterministicTakes, Makes])
    assert job.modes == "deterministic,aligned"
    assert job.topology().deterministic == {0}
    assert job.topology().is_source(1)
    assert Job("job", [DeterministicTakes, Both]).topology().externals_of(1) == ("outside",)


def test_a_deterministic_stage_behind_an_aligned_one_behind_it_is_refused() -> None:
    """D6 holds along the whole way."""
    with pytest.raises(GraphError, match="reads what stage 'makes' writes, which is not"):
        Job("job", [DeterministicTakes, Makes, Ends])


def test_a_deterministic_stage_reads_streams_or_the_outside() -> None:
    """D2: only a source's choices are written down."""
    with pytest.raises(GraphError, match="reads both a stream and topic 'outside'"):
        Job("job", [Takes, Both], mode="deterministic")


def test_batches_of_a_stream_are_refused_and_those_of_a_source_are_not() -> None:
    """A stream is cut into batches by the moment, a source's batches by its decisions."""
    Job("job", [TakesBatches], mode="deterministic")
    with pytest.raises(GraphError, match="has process_batch"):
        Job("job", [Takes, Batches], mode="deterministic")


def test_an_unknown_mode_is_refused() -> None:
    """The error names the stage and what there is."""
    with pytest.raises(GraphError, match="stage 'takes': mode = 'fast': need one of aligned, deterministic"):
        Job("job", [Takes], mode="fast")  # type: ignore[arg-type]  # that is the test
