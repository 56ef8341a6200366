"""Two versions of a job's code over one log, as a person deploys them: refused with a way, and each way works."""

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from grete.api.jobs.definition import decode_definition
from grete.errors import ConfigError, SerdeError
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.settings import Settings
from grete.state.pins.prepare import prepare
from grete.state.read.local_reader import DEFINITION
from tests.cli.changed_shop import READER, Changes, code, run, scan
from tests.cli.test_state_commands import grete

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]  # many workers, one after another


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a job that has run."""
    folder = tmp_path_factory.mktemp("ran")
    run(code(folder), folder / "job", "pear", "fig", "pear")
    return folder / "job"


@pytest.fixture
def directory(ran: Path, tmp_path: Path) -> Path:
    """Return a copy of it."""
    return Path(shutil.copytree(ran, tmp_path / "job"))


def unpin(directory: Path) -> None:
    """Make it the directory of a release that pinned no definition."""
    log = sqlite3.connect(directory / "log.db")
    log.execute("DELETE FROM meta WHERE key = 'definition'")
    log.commit()
    log.close()
    (directory / "state" / DEFINITION).unlink()


NEW_NAME = "give the changed one another name, under which it begins empty, and keep the old declaration beside it"
REFUSED: list[tuple[str, Changes, list[str]]] = [
    (
        "key",
        (('"counts", key=utf8', '"counts", key=json(str)'),),
        ["store total/counts: its key was utf8 and is json(str)", NEW_NAME],
    ),
    (
        "value",
        (("key=utf8, value=json(Order)", "key=utf8, value=json(dict[str, int])"),),
        ["store total/last: its value: was Order(item: str, count: int = 1) and is dict[str, int]", NEW_NAME],
    ),
    (
        "field without default",
        (
            ("    count: int = 1\n", "    count: int = 1\n    cents: int = msgspec.field(name='c')\n"),
            ("class Order(msgspec.Struct)", "class Order(msgspec.Struct, kw_only=True)"),
            ("Order(item)", "Order(item=item, cents=1)"),
        ),
        ["field 'c' of Order is new and has no default, so no value of before can be read: give the field a default"],
    ),
    ("field gone", (("    count: int = 1\n", ""),), ["field 'count' of Order is gone", NEW_NAME]),
    ("field renamed", (("    count: int", "    number: int"),), ["field 'count' of Order is gone"]),
    ("field retyped", (("count: int = 1", "count: str = '1'"),), ["field 'count' of Order was int and is str"]),
    ("default", (("count: int = 1", "count: int = 2"),), ["field 'count' of Order had the default 1 and has 2"]),
    (
        "a key's field, with default",
        (("count: int = 1", "count: int = 1\n    cents: int = 0"),),
        [
            "store total/rows: its key was json(Order(item: str, count: int = 1)) and is json(Order(item: str, ",
            "count: int = 1, cents: int = 0))",
        ],
    ),
    (
        "avro",
        (
            (
                '"name": "n", "type": "long"}',
                '"name": "n", "type": "long"}, {"name": "m", "type": "long", "default": 0}',
            ),
        ),
        ["store total/rows: its value: was avro(R)"],
    ),
    (
        "size",
        (("315_360_000_000", "157_680_000_000"),),
        ["window total/years: size_ms was 315360000000 and is 157680000000, so open windows", NEW_NAME],
    ),
    ("grace", (("315_360_000_000,", "315_360_000_000, grace_ms=9,"),), ["window total/years: grace_ms was 0 and is 9"]),
    (
        "kind",
        (
            ("import Input, Job", "import HoppingWindow, Input, Job"),
            ('TumblingWindow("years", 315_360_000_000,', 'HoppingWindow("years", 315_360_000_000, 9,'),
        ),
        [
            "window total/years was tumbling (size_ms 315360000000, grace_ms 0) and is hopping (size_ms 315360000000, ",
            "advance_ms 9, grace_ms 0), so open windows would never close",
            NEW_NAME,
        ],
    ),
    (
        "window's key",
        (("315_360_000_000, key=utf8", "315_360_000_000, key=int64"),),
        ["window total/years: its key was utf8 and is int64"],
    ),
    (
        "ttl added",
        (('"counts", key=utf8, value=int64', '"counts", key=utf8, value=int64, ttl_ms=9'),),
        ["store total/counts: ttl_ms has been added, so its stored values would be misread", NEW_NAME],
    ),
    (
        "store gone",
        (('    counts = Store("counts"', '    counts = Store("sums"'),),
        ["store total/counts (key utf8, value int64) is gone or has another name", "declare it again as it was"],
    ),
    (
        "stage renamed",
        (("class Total(", "class Sum("), ("[Total,", "[Sum,")),
        [
            "stage 'total' is called 'sum' now: write renamed_from = \"total\" in the class, and it keeps its state",
            "or give the job a new name",
        ],
    ),
    (
        "stages exchanged",
        (("[Total, Other]", "[Other, Total]"),),
        ["the stages were total, other and are other, total: keep them in their order"],
    ),
]


@pytest.mark.parametrize(("changes", "told"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_a_change_that_would_corrupt_is_refused(ran: Path, tmp_path: Path, changes: Changes, told: list[str]) -> None:
    """One message with the values before and after, and a way; nothing is written."""
    before = messages(ran)
    for command in ("run", "up"):
        refused = grete(command, code(tmp_path, *changes), f"--directory={ran}", fails=ConfigError)
        for text in told:
            assert text in refused
    assert messages(ran) == before


def messages(directory: Path) -> int:
    """Return the number of messages in the log of a directory."""
    with contextlib.closing(sqlite3.connect(directory / "log.db")) as log:
        count: int = log.execute("SELECT count(*) FROM message").fetchone()[0]
        return count


def test_the_code_before_goes_on_after_a_refusal(directory: Path, tmp_path: Path) -> None:
    """A worker is refused, too, and nothing of it is left."""
    changed = code(tmp_path, ("315_360_000_000", "157_680_000_000"))
    assert "size_ms was 315360000000" in grete(
        "rescale", changed, "--partitions=2", f"--directory={directory}", fails=ConfigError
    )
    same = code(tmp_path, name="same")
    run(same, directory, "pear")
    assert scan(same, directory, "counts") == {"fig": "1", "pear": "3"}


def test_state_is_read_by_the_serdes_it_was_written_with(directory: Path, tmp_path: Path) -> None:
    """By a code with others, scan and get say what changed; without the pins, a serde says that it cannot."""
    changed = code(tmp_path, ('"counts", key=utf8, value=int64', '"counts", key=int64, value=utf8'))
    asked = [f"--directory={directory}"]
    for command in (["scan", changed, "counts"], ["get", changed, "counts", "7"]):
        assert "its key was utf8 and is int64" in grete("state", *command, *asked, fails=ConfigError)
    assert "its key was utf8 and is int64" in grete(
        "state", "scan", changed, "counts", "--checkpoint=1", *asked, fails=ConfigError
    )
    unpin(directory)
    assert "store counts: serde int64 cannot decode" in grete(
        "state", "scan", changed, "counts", *asked, fails=SerdeError
    )


def test_a_store_is_added_to_a_stage_with_a_window(directory: Path, tmp_path: Path) -> None:
    """Old stores and windows keep the ids that their state has, in any order; the new one gets the next."""
    more = ("    years = Tumbling", '    items = Store("items", key=utf8, value=utf8)\n    years = Tumbling')
    used = ("        count = self.counts", '        self.items.put("last", item)\n        count = self.counts')
    first = ('    counts = Store("counts", key=utf8, value=int64)\n', "")
    last = ("    out = Output", '    counts = Store("counts", key=utf8, value=int64)\n    out = Output')
    changed = code(tmp_path, more, used, first, last)
    run(changed, directory, "pear")
    assert scan(changed, directory, "counts") == {"fig": "1", "pear": "3"}
    assert scan(changed, directory, "items") == {"last": "pear"}
    assert sum(int(count) for count in scan(changed, directory, "years").values()) == 4
    found = decode_definition((directory / "state" / DEFINITION).read_bytes())["stages"][0]
    ids = {entry["name"]: entry["id"] for entry in (*found["stores"], *found["windows"])}
    assert [ids[name] for name in ("counts", "last", "rows", "years", "items")] == [10, 11, 12, 13, 14]


def test_a_field_with_a_default_is_added_to_a_value(directory: Path, tmp_path: Path) -> None:
    """It is allowed, and from then on it is part of the definition: the code without it is refused."""
    split = ("class Total(Task)", "class Kept(Order):\n    cents: int = 7\nclass Total(Task)")
    changed = code(tmp_path, split, ("value=json(Order)", "value=json(Kept)"), ("put(item, Order(", "put(item, Kept("))
    run(changed, directory, "fig")
    found = scan(changed, directory, "last")
    assert found == {
        "fig": '{"item": "fig", "count": 1, "cents": 7}',
        "pear": '{"item": "pear", "count": 1, "cents": 7}',
    }
    older = code(tmp_path, name="older")
    assert "field 'cents' of Kept is gone" in grete("run", older, f"--directory={directory}", fails=ConfigError)


def test_a_changed_store_and_window_get_new_names_beside_the_old(directory: Path, tmp_path: Path) -> None:
    """The way that a refusal names: what was there is there, and windows that were open close."""
    counts = (
        '    counts = Store("counts", key=utf8, value=int64)\n',
        '    counts = Store("counts", key=utf8, value=int64)\n    sums = Store("sums", key=json(str), value=int64)\n',
    )
    windows = (
        "    out = Output",
        '    hours = TumblingWindow("hours", 3_600_000, key=utf8, value=int64)\n    out = Output',
    )
    used = (
        "        count = self",
        (
            "        self.sums.put(item, self.counts.get(item, 0))\n"
            "        self.hours.update(item, record.timestamp, lambda value: 1)\n        count = self"
        ),
    )
    changed = code(tmp_path, counts, windows, used)
    run(changed, directory, "pear")
    assert scan(changed, directory, "sums") == {"pear": "2"}
    assert scan(changed, directory, "counts") == {"fig": "1", "pear": "3"}
    assert len(scan(changed, directory, "hours")) == 1
    assert sum(int(count) for count in scan(changed, directory, "years").values()) == 4


def test_a_stage_of_another_class_keeps_its_name(directory: Path, tmp_path: Path) -> None:
    """The way that a refusal names."""
    changed = code(tmp_path, ("class Total(Task):\n", 'class Sum(Task):\n    name = "total"\n'), ("[Total,", "[Sum,"))
    run(changed, directory, "pear")
    assert scan(changed, directory, "counts") == {"fig": "1", "pear": "3"}


def test_a_job_of_another_name_begins_without_state(directory: Path, tmp_path: Path) -> None:
    """The way that a refusal of exchanged stages names."""
    changed = code(tmp_path, ("[Total, Other]", "[Other, Total]"), ('Job("shop"', 'Job("shop-2"'))
    run(changed, directory.parent / "second", "pear")
    assert scan(changed, directory.parent / "second", "counts") == {"pear": "1"}


def test_a_topic_for_readers_outside_stays_one(directory: Path, tmp_path: Path) -> None:
    """A stage that reads an output topic is refused; a public topic has what was there and what comes, as the stage."""
    reading = code(tmp_path, more=READER)
    refused = grete("run", reading, f"--directory={directory}", fails=ConfigError)
    assert "stage 'reads' reads topic 'totals', which readers outside of the job use" in refused
    assert "write Topic('totals', …, public=True), and each record goes to both" in refused
    public = code(
        tmp_path,
        ('"totals", key=utf8, value=int64', '"totals", key=utf8, value=int64, public=True'),
        name="public",
        more=READER,
    )
    run(public, directory, "fig", "pear")
    assert scan(public, directory, "seen") == {"fig": "2", "pear": "3"}
    outside = [
        line.split("\t")[2:]
        for line in grete("topic", "read", public, "totals", f"--directory={directory}").splitlines()
    ]
    assert outside == [["pear", "1"], ["fig", "1"], ["pear", "2"], ["fig", "2"], ["pear", "3"]]
    assert "public=True" in grete("run", reading, f"--directory={directory}", fails=ConfigError)


def test_another_output_topic_is_taken(directory: Path, tmp_path: Path) -> None:
    """The former topic keeps its records; the new one gets the next."""
    changed = code(tmp_path, ('Topic("totals"', 'Topic("sums"'))
    run(changed, directory, "pear")
    assert grete("topic", "read", changed, "sums", f"--directory={directory}").split() == ["0", "0", "pear", "3"]


def test_a_stage_that_never_committed_does_not_bind(directory: Path, tmp_path: Path) -> None:
    """The code before goes on: after a start with one stage more that came to nothing, and after one that committed."""
    more = code(tmp_path, ("job = Job(", "class More(Other):\n    pass\njob = Job("), ("Other]", "Other, More]"))
    job_directory = JobDirectory(directory)
    log = job_directory.open_log()
    prepare(load_job(more), log, job_directory, Settings())
    log.close()
    assert b'"name":"more"' in (directory / "state" / DEFINITION).read_bytes()
    run(code(tmp_path, name="same"), directory, "pear")
    assert b'"name":"more"' not in (directory / "state" / DEFINITION).read_bytes()
    run(more, directory, "pear")
    run(code(tmp_path, name="again"), directory, "pear")  # no stage sends it anything: it pauses, and keeps its state
    assert b'"name":"more"' in (directory / "state" / DEFINITION).read_bytes()
    run(more, directory, "pear")


def test_a_fork_refuses_what_would_misread_the_state(directory: Path, tmp_path: Path) -> None:
    """And takes over the ids that the state has."""
    first = code(tmp_path, name="first")
    name = ('Job("shop"', 'Job("fork"')
    changed = code(tmp_path, name, ('"counts", key=utf8', '"counts", key=json(str)'))
    asked = [f"--directory={directory}", f"--second-directory={tmp_path / 'second'}"]
    assert "its key was utf8 and is json(str)" in grete("fork", first, changed, *asked, fails=ConfigError)
    more = ("    years = Tumbling", '    items = Store("items", key=utf8, value=utf8)\n    years = Tumbling')
    second = code(tmp_path, name, more, name="second")
    grete("fork", first, second, *asked)
    run(second, tmp_path / "second", "pear")
    assert scan(second, tmp_path / "second", "counts") == {"fig": "1", "pear": "3"}
    assert sum(int(count) for count in scan(second, tmp_path / "second", "years").values()) == 4


def test_a_job_of_the_release_before_is_pinned_and_goes_on(
    directory: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It has no definition: its code is taken, once, with the ids that its state notes."""
    unpin(directory)
    more = ("    years = Tumbling", '    items = Store("items", key=utf8, value=utf8)\n    years = Tumbling')
    changed = code(tmp_path, more)
    run(changed, directory, "pear")
    assert caplog.text.count("pinned no definition") == 1
    run(changed, directory, "pear")
    assert caplog.text.count("pinned no definition") == 1
    assert scan(changed, directory, "counts") == {"fig": "1", "pear": "4"}
    assert sum(int(count) for count in scan(changed, directory, "years").values()) == 5
    found = decode_definition((directory / "state" / DEFINITION).read_bytes())
    assert {w["name"]: w["id"] for w in found["stages"][0]["windows"]} == {"years": 13}
    assert "size_ms was 315360000000" in grete(
        "run",
        code(tmp_path, ("315_360_000_000", "157_680_000_000"), name="v3"),
        f"--directory={directory}",
        fails=ConfigError,
    )
