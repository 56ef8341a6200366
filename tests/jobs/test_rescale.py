"""Jobs as their users write them, with keys whose first part places the record: each has 2 partitions, and then 6.

What each has kept and written is compared with a plain recount of its input, in one loop over all records.
"""

import random
from types import ModuleType
from typing import Any

import pytest

from grete.state.write import rescale as rescale_module
from tests.jobs.recounts import JOBS, check
from tests.state.moving_host import MovableJob


@pytest.fixture(autouse=True)
def not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not look for live workers of these jobs: theirs are in this process."""
    monkeypatch.setattr(rescale_module, "refuse_if_owned", lambda *_: None)


@pytest.mark.parametrize("of", JOBS, ids=lambda of: of.__name__.rsplit(".", 1)[-1])
def test_a_job_is_rescaled_in_the_middle_of_its_work(of: ModuleType) -> None:
    """Through crashes before and after, and while event times are apart: state and outputs are those of a recount."""
    given, recount = JOBS[of](random.Random(5))
    job = MovableJob(of.job)
    for turn, some in enumerate((given[: len(given) // 2], given[len(given) // 2 :])):
        job = job.moved(6) if turn else job
        for topic, key, value, at in some:
            raw: Any = None if value is None else topic.value.encode(value)
            job.feed(topic.name, [(topic.key.encode(key), raw, at)])
        job.run(crashes=3, seed=turn)
    job.drain()
    check(job, of, recount)
