"""The commands that other commands name, to be typed next: they find the same log and directory."""

from pathlib import Path

import pytest

from grete.cli.job_target import NamedJob, options_for
from grete.logs.address import LogAddress
from grete.settings import Settings

PLACES = {
    "the usual log": (LogAddress(), None, "grete run job.py"),
    "another directory": (LogAddress(), Path("/srv/job"), "grete run job.py --directory /srv/job"),
    "Kafka": (LogAddress("kafka://broker:9092"), None, "grete up job.py --log kafka://broker:9092"),
    "Kafka, with options": (
        LogAddress("kafka://broker:9092", Path("kafka.properties")),
        Path("own"),
        "grete up job.py --log kafka://broker:9092 --kafka-config kafka.properties --directory own",
    ),
}


@pytest.mark.parametrize(("address", "directory", "command"), PLACES.values(), ids=PLACES)
def test_a_job_is_started_where_it_was_changed(address: LogAddress, directory: Path | None, command: str) -> None:
    """Without the log's address the next command would begin another job, on a log of this machine."""
    named = NamedJob("job.py", directory, address, Settings)
    assert named.start("job.py", directory) == command
    assert command.endswith(options_for(address, directory))
