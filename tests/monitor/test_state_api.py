"""State over HTTP: what is answered, from where, as of which checkpoint, and each refusal."""

import io
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest

from grete.job.loader import load_job
from grete.logs.embedded import EmbeddedLog
from grete.logs.embedded.reader import EmbeddedReader
from grete.monitor.access import OPEN, Access
from grete.monitor.bounded_reader import READ_BYTES_MAX
from grete.monitor.queries import api
from grete.monitor.queries.api import StateApi, refused_where_tasks_run
from grete.monitor.server import Monitor, serving
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from grete.state.read.checkpoints.snapshots import id_of_all, snapshots
from tests.monitor.test_server import get
from tests.support.shown import showing
from tests.worker.workers import LIMIT_S

JOB = "tests/monitor/state_job.py"
NAMES = [f"name-{number:03}" for number in range(120)]
ODD = "a/b ?&"  # a key that a URL must write in another way
FIVE, SIX, B = quote('["ann", 5]'), quote('["ann", 6]'), quote('["b"]')
MINUTE = 60_000


def append(directory: Path, *records: tuple[str, str, int]) -> None:
    """Append (key, value, timestamp) to the topic that the job reads."""
    with closing(EmbeddedLog(directory / "log.db")) as log:
        rows = [
            ExternalRecord(
                TopicPartition("lines", partition_of(key.encode(), 2)), key.encode(), value.encode(), at, None
            )
            for key, value, at in records
        ]
        log.open_metadata("state").produce_with_meta(rows, {})


def run(directory: Path) -> int:
    """Run the job up to the end of its input; return the checkpoint at its end."""
    command = [sys.executable, "-m", "grete.cli", "run", JOB, f"--directory={directory}"]
    subprocess.run(command, check=True, timeout=LIMIT_S, capture_output=True)
    with closing(EmbeddedReader(directory / "log.db")) as log:
        return id_of_all(snapshots(log, load_job(JOB)))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """The directory of a job that has run twice, and the checkpoint at the end of the first run."""
    directory = tmp_path_factory.mktemp("state") / "job"
    run(directory)
    append(directory, ("ann", "first", 0), (ODD, "odd", 0))
    first = run(directory)
    append(directory, ("ann", "second", 10_000), ("ann", "again", 2 * MINUTE), *((name, "x", MINUTE) for name in NAMES))
    run(directory)
    return directory, first


@contextmanager
def served(directory: Path, access: Access = OPEN, bytes_max: int = READ_BYTES_MAX) -> Iterator[str]:
    """Serve the state of a job within the block; yield the address."""
    state = StateApi(load_job(JOB), directory / "state", lambda: EmbeddedReader(directory / "log.db"), bytes_max)
    with ExitStack() as opened:
        opened.callback(state.close)
        yield opened.enter_context(serving(Monitor(60, more=state.routes()), "0", access))


@pytest.fixture(scope="module")
def url(ran: tuple[Path, int]) -> Iterator[str]:
    """The address of the job that has run."""
    with served(ran[0]) as address:
        yield address


def asked(url: str, path: str) -> Any:
    """Return the JSON of an answer that is none of an error."""
    code, body = get(url, path)
    assert code == 200, body
    return json.loads(body)


def test_a_key_is_written_as_the_command_line_has_it(url: str, ran: tuple[Path, int]) -> None:
    """Text, a number, JSON of several parts; the answer names the partition and its checkpoint."""
    entry = asked(url, "/state/last/ann")
    assert (entry["store"], entry["key"], entry["value"]) == ("last", "ann", "again")
    assert entry["partition"] == partition_of(b"ann", 2)
    assert entry["checkpoint"] > ran[1]
    assert entry["notes"] == []
    assert asked(url, f"/state/last/{quote(ODD, safe='')}?stage=keep")["value"] == "odd"
    assert asked(url, "/state/lengths/6")["value"] == "ann"
    pair = asked(url, f"/state/pairs/{quote(json.dumps(['ann', 5]))}")
    assert (pair["key"], pair["value"]) == (["ann", 5], {"value": "again"})
    other = 1 - partition_of(b"ann", 2)
    assert get(url, f"/state/last/ann?partition={other}")[0] == 404


def test_state_is_read_as_of_a_checkpoint(url: str, ran: tuple[Path, int]) -> None:
    """As it was then, by key and by scan."""
    entry = asked(url, f"/state/last/ann?checkpoint={ran[1]}")
    assert entry["value"] == "first"
    assert ran[1] <= entry["checkpoint"] < asked(url, "/state/last/ann")["checkpoint"]  # a source has times of its own
    time = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ran[1])
    assert asked(url, f"/state/last/ann?checkpoint={quote(time.isoformat())}") == entry
    page = asked(url, f"/state/last?checkpoint={ran[1]}")
    assert {row["key"]: row["value"] for row in page["rows"]} == {"ann": "first", ODD: "odd"}
    assert min(page["checkpoints"].values()) >= ran[1]


def test_a_scan_goes_on_where_an_answer_ended(url: str) -> None:
    """Each entry once, in the order of keys within a partition; the end has no next."""
    found: list[tuple[int, str]] = []
    after = ""
    while True:
        page = asked(url, f"/state/last?limit=7&after={after}")
        assert 1 <= len(page["rows"]) <= 7
        found += [(row["partition"], row["key"]) for row in page["rows"]]
        assert {str(row["partition"]) for row in page["rows"]} <= set(page["checkpoints"])
        if page["next"] is None:
            break
        after = page["next"]
    assert found == sorted(set(found))
    assert {key for _, key in found} == {"ann", ODD, *NAMES}


def test_a_scan_is_bounded_by_a_prefix_or_a_range(url: str) -> None:
    """Of text, of numbers by their order, and of the first parts of a key; also when it goes on."""
    keys = {row["key"] for row in asked(url, "/state/last?prefix=name-00")["rows"]}
    assert keys == {name for name in NAMES if name.startswith("name-00")}
    found, after = list[str](), ""
    while True:
        page = asked(url, f"/state/last?from=name-010&to=name-020&limit=3&after={after}")
        found += [row["key"] for row in page["rows"]]
        if page["next"] is None:
            break
        after = page["next"]
    assert sorted(found) == NAMES[10:20]
    assert {row["key"] for row in asked(url, "/state/lengths?from=2&to=6")["rows"]} == {3, 5}
    begin = quote(json.dumps(["ann"]))
    rows = asked(url, f"/state/pairs?prefix={begin}")["rows"]
    assert [row["key"] for row in rows] == [["ann", 5], ["ann", 6]]
    assert [row["key"] for row in asked(url, f"/state/pairs?from={SIX}&to={B}")["rows"]] == [["ann", 6]]


def test_windows_are_read_by_key_and_by_time(url: str) -> None:
    """Those that lie the same for all keys, and those that lie where a key's records are."""
    rows = asked(url, "/windows/minutes/ann")["rows"]
    shown = [
        {"partition": rows[0]["partition"], "key": "ann", "start": start, "end": start + MINUTE}
        for start in (0, 2 * MINUTE)
    ]
    assert rows == [{**shown[0], "value": 2}, {**shown[1], "value": 1}]
    (row,) = asked(url, f"/windows/minutes/ann?from=1&to={5 * MINUTE}")["rows"]
    assert row["start"] == 2 * MINUTE
    second = asked(url, f"/windows/minutes?from={MINUTE}&to={2 * MINUTE}&limit=1000")["rows"]
    assert {row["key"] for row in second} == set(NAMES)
    sittings = asked(url, "/windows/sittings/ann")["rows"]
    assert [(row["start"], row["end"], row["value"]) for row in sittings] == [
        (0, 10_001, 2),
        (2 * MINUTE, 2 * MINUTE + 1, 1),
    ]
    assert asked(url, "/windows/sittings/none-such")["rows"] == []
    assert [row["start"] for row in asked(url, f"/windows/sittings/ann?to={MINUTE}")["rows"]] == [0]


def test_the_stores_are_named(url: str) -> None:
    """Each has what a program needs to write its keys."""
    answer = asked(url, "/state")
    stores = {each["store"]: each for each in answer["stores"]}
    assert stores["pairs"]["key"] == "Key(utf8, int64)"
    assert [name for name, each in stores.items() if each["window"]] == ["minutes", "sittings"]
    assert {each["partitions"] for each in stores.values()} == {2}


@pytest.mark.parametrize(
    ("path", "code", "said"),
    [
        ("/state/sums", 404, "no store is called 'sums': there are keep/last, keep/pairs"),
        ("/state/last/none-such", 404, "store last has no such key, as of the checkpoints of its partitions ("),
        ("/state/last/ann?checkpoint=12", 404, "checkpoint 12"),
        ("/state/last?partition=7", 404, "last has 2 partitions, counted from 0: there is no 7"),
        ("/windows/last", 404, "'last' is no window: ask for /state/last"),
        ("/state/last?stage=other", 404, "other"),
        ("/state/lengths/many", 400, "'many' is not a key of serde int64"),
        ("/state/pairs/ann", 400, "'ann' is not a key of serde Key(utf8, int64)"),
        ("/state/pairs/%5B%22ann%22%5D", 400, "need 2 parts"),
        ("/state/minutes/ann", 400, "is of a window, which has keys of its own: ask /windows/minutes/KEY"),
        ("/state/last/ann?checkpoint=x", 400, "checkpoint = 'x': a checkpoint is a number"),
        ("/state/last?limit=0", 400, "limit = 0: give 1 to 1000"),
        ("/state/last?limit=1001", 400, "limit = 1001: give 1 to 1000"),
        ("/state/last?after=9:00", 400, "after = '9:00': give the next of the answer before"),
        ("/state/last?form=a", 400, "there is no parameter 'form' here: there are stage, partition"),
        ("/state/last/ann?prefix=a", 400, "there is no parameter 'prefix' here"),
        ("/state/last?prefix=a&from=b", 400, "prefix, and from or to: give one of the two"),
        ("/state/lengths?prefix=1", 400, "have no beginning of their own: ask with from and to"),
        ("/windows/minutes?from=soon", 400, "from = 'soon': give a number"),
    ],
)
def test_what_cannot_be_answered_is_said(url: str, path: str, code: int, said: str) -> None:
    """With the values, and what to ask."""
    status, body = get(url, path)
    assert (status, said in json.loads(body)["error"]) == (code, True), body


def test_only_reading_is_answered(url: str) -> None:
    """No other method of HTTP."""
    request = urllib.request.Request(f"{url}/state/last/ann", data=b"{}", method="PUT")
    with pytest.raises(urllib.error.HTTPError, match="405") as refused:
        urllib.request.urlopen(request, timeout=LIMIT_S)
    refused.value.close()


def test_arrow_is_answered_if_it_is_asked_for(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers as such, text as text, the rest as JSON; without pyarrow a sentence."""

    def arrow(path: str) -> Any:
        request = urllib.request.Request(url + path, headers={"accept": "application/vnd.apache.arrow.stream"})
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            return pa.ipc.open_stream(io.BytesIO(answer.read())).read_all()

    table = arrow("/state/lengths")
    assert table.schema.field("key").type == pa.int64()
    assert set(table["key"].to_pylist()) == {1, 3, 5, 6}
    assert json.loads(table.schema.metadata[b"grete"])["checkpoints"]
    assert arrow(f"/state/pairs/{FIVE}")["value"].to_pylist() == ['{"value":"again"}']
    assert arrow("/windows/minutes/ann")["start"].to_pylist() == [0, 2 * MINUTE]
    monkeypatch.setattr(api, "has_pyarrow", lambda: False)
    with pytest.raises(urllib.error.HTTPError, match="406") as refused:
        arrow("/state/lengths")
    with refused.value:
        assert b"pip install pyarrow" in refused.value.read()


def test_a_partition_of_another_machine_is_read_from_its_changelog(ran: tuple[Path, int], tmp_path: Path) -> None:
    """With a note that says so; where that takes too long, the machine that has it is named."""
    shutil.copytree(ran[0], tmp_path / "job")
    away = partition_of(b"ann", 2)
    shutil.rmtree(tmp_path / "job" / "state" / f"keep-{away}")
    with served(tmp_path / "job") as url:
        entry = asked(url, "/state/last/ann")
        assert (entry["value"], entry["partition"]) == ("again", away)
        assert entry["checkpoint"] > ran[1]
        assert f"keep-{away}: read from its changelog: there is no committed state of it in" in entry["notes"][0]
        assert asked(url, f"/state/last/{NAMES[0]}?partition={partition_of(NAMES[0].encode(), 2)}")["value"] == "x"
    with served(tmp_path / "job", bytes_max=10) as url:
        code, body = get(url, "/state/last/ann")
        assert code == 503
        assert "has the state of keep-" in json.loads(body)["error"]
        assert f"on {os.uname().nodename}" in json.loads(body)["error"]


def test_hidden_parts_of_records_are_in_no_answer(ran: tuple[Path, int]) -> None:
    """With ``keys`` no value leaves, by key, by scan, in windows; with ``none`` nothing is told."""
    paths = "/state/last/ann", "/state/last", "/windows/minutes/ann", "/windows/sittings"
    with served(ran[0]) as url, showing("keys"):
        for path in paths:
            answer = asked(url, path)
            rows = answer.get("rows", [answer])
            assert all(row["key"] for row in rows)
            assert not any("value" in row for row in rows)
    with served(ran[0]) as url, showing("none"):
        for path in (*paths, "/state/last/none-such"):
            code, body = get(url, path)
            assert (code, json.loads(body)["error"]) == (
                403,
                "the setting show_records is none: state has keys and values alone",
            )


def test_who_has_no_token_gets_nothing(ran: tuple[Path, int]) -> None:
    """As of the page."""
    token = "a-token-that-is-long-enough"
    with served(ran[0], Access(token=token.encode())) as url:
        assert get(url, "/state/last/ann")[0] == 401
        request = urllib.request.Request(f"{url}/state/last/ann", headers={"authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            assert json.loads(answer.read())["value"] == "again"


def test_a_process_that_runs_a_task_says_where_to_ask() -> None:
    """It would wait for what is read."""
    with serving(Monitor(60, more=refused_where_tasks_run()), "0") as url:
        for path in ("/state", "/state/last/ann", "/windows/minutes"):
            code, body = get(url, path)
            assert (code, "ask the page of grete up" in json.loads(body)["error"]) == (404, True)
