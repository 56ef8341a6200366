"""Jobs whose keys version 1 of the serdes writes in several ways go on with it; a new one writes version 2.

``keys.tar.xz`` was made with commit 2f6ae3bd: ``grete run keys.py --input sales=- --keys``, given SALES, and likewise a
deterministic job. It holds their logs; a start makes the state again.
"""

import json as plain_json
import shutil
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grete import Job
from grete.cli.main import app
from grete.clients.client import Client
from grete.errors import ExitCode
from grete.logs.embedded import EmbeddedReader
from grete.logs.partition_reader import rows
from grete.protocol.ids import TopicPartition
from grete.state.read.local_reader import LocalReader
from tests.cli.test_run import grete as run_elsewhere
from tests.cli.test_state_commands import grete
from tests.support.archives import unpack
from tests.upgrade import keys

HERE = Path(__file__).parent
SALES = """\
a	{"price": "1.0", "at": "2026-01-01T12:00:00+00:00", "pieces": 5.0}
b	{"price": "1.00", "at": "2026-01-01T13:00:00+01:00", "pieces": 5.0}
c	{"price": "2", "at": "2026-01-01T12:00:00+00:00", "pieces": 0.0}
d	{"price": "2.0", "at": "2026-01-01T15:00:00+00:00", "pieces": -0.0}
"""
FIRST = {  # store → its keys as version 1 writes them, each of one sale
    "hours": [b'"1.0"', b'"1.00"', b'"2"', b'"2.0"'],
    "moments": [b'"2026-01-01T12:00:00Z"', b'"2026-01-01T13:00:00+01:00"', b'"2026-01-01T15:00:00Z"'],
    "pieces": [b"-0.0", b"0.0", b"5.0"],
}
SECOND = {"hours": [b'"1"', b'"2"'], "moments": [FIRST["moments"][0], FIRST["moments"][2]], "pieces": [b"0", b"5"]}


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with both directories, and the code of the deterministic job, taken over by this build."""
    folder = tmp_path_factory.mktemp("keys")
    unpack(HERE / "keys.tar.xz", folder)
    text = (HERE / "keys.py").read_text()
    named = text.replace('Job("keys"', 'Job("keys-deterministic"').replace("partitions=2", "partitions=2, mode=MODE")
    (folder / "keys_deterministic.py").write_text(named.replace("LONG_MS =", 'MODE = "deterministic"\nLONG_MS ='))
    (folder / "forked.py").write_text(text.replace('Job("keys"', 'Job("forked"'))
    shutil.copy(HERE / "keys.py", folder)
    (folder / "plan.json").write_text(command(folder, "plan", "keys.py", "aligned", "--json"))
    run(folder, "aligned")
    return folder


def command(folder: Path, name: str, code: str, directory: str, *options: str) -> str:
    """Run a command in this process; return what it printed."""
    return grete(*name.split(), str(folder / code), *options, f"--directory={folder / directory}")


def run(folder: Path, directory: str) -> None:
    """Run the aligned job with SALES to the end of its input."""
    options = "--input=sales=-", "--keys", f"--directory={directory}"
    run_elsewhere("run", str(HERE / "keys.py"), *options, cwd=folder, stdin=SALES)


def stored(directory: Path, name: str) -> dict[bytes, tuple[int, bytes]]:
    """Return key → partition and value, as bytes, of a store of the job, which takes what is pinned there."""
    found = {}
    with LocalReader(directory / "state", keys.job) as reader:
        store = reader.store(name)
        for partition in range(2):
            reader.changelog_position(f"count-{partition}")
            for key, value in reader.raw(store, b"", partition):
                assert key not in found
                found[key] = partition, value
    return found


def outputs(directory: Path, topic: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield key and value of each record of the job's output."""
    with closing(EmbeddedReader(directory / "log.db")) as log:
        for partition in (TopicPartition(topic, number) for number in range(2)):
            for row in rows(log, partition, *log.bounds(partition)):
                assert row.key is not None
                assert row.value is not None
                yield row.key, row.value


def definition(directory: Path, job: str) -> dict[str, object]:
    """Return the definition that a job has pinned."""
    with closing(EmbeddedReader(directory / "log.db")) as log:
        raw = log.read_metadata(job).meta_get("definition")
    assert raw is not None
    found: dict[str, object] = plain_json.loads(raw)
    return found


def test_a_job_of_before_goes_on_with_its_bytes(before: Path) -> None:
    """Each key is found again as it was written, in stores, windows and streams; outputs have the bytes of before."""
    directory = before / "aligned"
    for name in ("hours", "moments"):
        assert sorted(stored(directory, name)) == FIRST[name]
    assert set(stored_pieces(directory)) == {*FIRST["pieces"]}
    assert all(n == 2 for n in windows(directory))
    found = sorted(outputs(directory, "totals"))
    assert found[:2] == [(b'"1.0"', b'{"12":1,"0":1}'), (b'"1.0"', b'{"12":2,"0":1}')]
    assert [key for key, _ in found[::2]] == FIRST["hours"]
    assert "serdes" not in definition(directory, "keys")


def stored_pieces(directory: Path) -> list[bytes]:
    """Return the keys of ``pieces``, of which two partitions may have the same."""
    with LocalReader(directory / "state", keys.job) as reader:
        store = reader.store("pieces")
        for partition in range(2):
            reader.changelog_position(f"count-{partition}")
        return [key for partition in range(2) for key, _ in reader.raw(store, b"", partition)]


def windows(directory: Path) -> list[int]:
    """Return the counts of the open windows."""
    with LocalReader(directory / "state", keys.job) as reader:
        return [count for _, count in reader.all(reader.store("windows"))]


def test_the_plan_says_that_it_keeps_version_1(before: Path) -> None:
    """It is no change to be made, so a deploy may go on; the way to version 2 is named."""
    rows = [plain_json.loads(line) for line in (before / "plan.json").read_text().splitlines()]
    assert [(row["what"], row["by"]) for row in rows] == [
        ("the serdes have version 2, and the job began with version 1", "start")
    ]
    assert "count/hours" in rows[0]["state"]
    assert "grete migrate" in rows[0]["way"]


def test_readers_ask_by_the_version_of_the_job(before: Path) -> None:
    """The user gives the store that the class declares, which says nothing of a version."""
    job = Job("keys", stages=[keys.Spread, keys.Count], partitions=2)
    with Client(job, directory=before / "aligned") as client:
        assert client.get(keys.Count.hours, Decimal("1.00")) == {13: 2, 0: 1}
        assert client.get(keys.Count.hours, Decimal("1.000")) is None
        assert client.get(keys.Count.moments, datetime(2026, 1, 1, 15, tzinfo=UTC)) == 2
    assert command(before, "state get", "keys.py", "aligned", "hours", '"1.0"').startswith('{"12": 2')


def test_a_replay_makes_outputs_of_before_again(before: Path) -> None:
    """To the byte, here and in another process: a deterministic job is not blamed for the new version."""
    told = command(before, "check-determinism", "keys_deterministic.py", "deterministic")
    assert "4 outputs compared" in told
    assert "all of them are the same" in told
    assert (b'"1.0"', b'{"12":1,"0":1}') in outputs(before / "deterministic", "totals")


def test_a_replay_does_not_blame_code_for_an_order(before: Path) -> None:
    """Here it fills the dict the other way round, as a set of dates may: version 1 of the serdes keeps that."""
    code, send = (before / "keys_deterministic.py").read_text(), "self.out.send(sale.price, "
    (before / "turned.py").write_text(code.replace(f"{send}hours", f"{send}dict(reversed(hours.items()))"))
    done = CliRunner().invoke(
        app, ["check-determinism", str(before / "turned.py"), f"--directory={before / 'deterministic'}"]
    )
    assert done.exit_code == ExitCode.FAILED
    assert (
        "both are equal, so your code is not to blame: serde json(dict) writes equal values in two ways" in done.stdout
    )
    assert "this job began with version 1" in done.stdout
    assert "look at" not in done.stdout


def test_a_fork_has_the_version_of_its_state(before: Path) -> None:
    """Its entries are those of the first job, whose keys it must find."""
    options = str(before / "forked.py"), f"--second-directory={before / 'forked'}", "--assume-keyed"
    command(before, "fork", "keys.py", "aligned", *options)
    assert "serdes" not in definition(before / "forked", "forked")


def test_a_new_job_has_one_key_for_equal_ones(tmp_path: Path) -> None:
    """Keys of any spelling are one entry, in the partition of their key, and one key for readers outside."""
    run(tmp_path, "job")
    directory = tmp_path / "job"
    assert sorted(stored(directory, "hours")) == SECOND["hours"]
    assert sorted({*stored_pieces(directory)}) == SECOND["pieces"]
    assert sorted(windows(directory)) == [2, 2]
    found = list(outputs(directory, "totals"))
    assert {key for key, _ in found} == {*SECOND["hours"]}
    assert {value for key, value in found if key == b'"1"'} == {b'{"0":1,"12":1}', b'{"0":1,"13":1}'}
    pinned = definition(directory, "keys")
    assert (pinned["serdes"], pinned["format"]) == (2, 3)
    job = Job("keys", stages=[keys.Spread, keys.Count], partitions=2)
    with Client(job, directory=directory) as client:
        assert client.get(keys.Count.hours, Decimal("1.000")) == {13: 1, 0: 1}
