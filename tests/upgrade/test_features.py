"""Jobs that an earlier release has run and lost to a kill: this build goes on with their directories.

They use all that release 0.2.0 had. ``make_features.py`` made the archives, each with the code of its release.
"""

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from grete.logs.partition_reader import rows
from grete.protocol.changelog import ChangelogType, decode_changelog_header
from grete.state.read.checkpoints.commits import all_wirings, end_of, uncommitted_records
from tests.support.archives import unpack
from tests.support.parity_job import Outputs, ParityJob, State
from tests.upgrade.features import CLOCK, EXPECTED, MODES, MORE

RELEASES = ("0.2.0", "0.3.0", "0.4.0")
Found = tuple[
    list[tuple[tuple[str, int, int, bytes], bytes]],
    list[tuple[str, list[tuple[tuple[int, bytes | None, bytes | None, int], int]]]],
]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("mode", MODES)
def test_a_job_goes_on_after_a_kill(tmp_path: Path, mode: str, release: str) -> None:
    """State to the byte and each output once, as the release made them without a kill: joins, calls, timers."""
    archive = Path(__file__).with_name(f"features-{release}.tar.xz")
    unpack(archive, tmp_path, lambda name: name.split("/")[0] == mode)
    job = ParityJob(tmp_path / mode)
    expected_state, expected_outputs = expected(tmp_path / mode)
    assert uncommitted(job) > 0  # the kill left some
    job.run(MORE)
    assert of(job.state()) == of(expected_state)
    assert job.outputs() == expected_outputs
    job.log.close()


def uncommitted(job: ParityJob) -> int:
    """Return the number of results that are in no commit: records that tasks have sent on, or their decisions."""
    found = 0
    for wiring in all_wirings(job.job):
        last, _ = end_of(job.log, wiring.changelog)
        assert last is not None
        behind = rows(job.log, wiring.changelog, last.offset + 1, job.log.bounds(wiring.changelog)[1])
        types = Counter(decode_changelog_header(row.value or b"").type for row in behind)
        found += types[ChangelogType.INPUT_DECISION] + uncommitted_records(job.log, wiring)
    return found


def expected(directory: Path) -> tuple[State, Outputs]:
    """Return the state and the outputs that the job must have in the end."""
    state, outputs = msgspec.msgpack.decode((directory / EXPECTED).read_bytes(), type=Found)
    return dict(state), {topic: Counter(dict(each)) for topic, each in outputs}


def of(state: State) -> State:
    """Return the entries that do not depend on a clock; the clock's own without their values."""
    return {entry: b"" if entry[0] == CLOCK else value for entry, value in state.items()}
