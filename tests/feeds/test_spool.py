"""The spool: what it holds survives any end of the process, and a record keeps its number until the log has it."""

import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete.api.topics.reader import Once
from grete.errors import ConfigError, Halted
from grete.feeds.spool import WAL_BYTES_MAX, Spool, Spooled
from grete.ports import ExternalRecord
from grete.protocol.frames import decode_headers, encode_headers
from tests.support import forking

ROOMY = 64 << 20
KEYS = (None, b"a", b"b", b"c")
HEADERS = (("h", b"x"), ("h", None))


def new(records: list[ExternalRecord]) -> list[bytes | None]:
    """Return the values that a reader takes for new, who finds a gap in no session."""
    once = Once()
    return [
        record.value
        for record in records
        if once.is_new("t", record.partition.partition, decode_headers(record.headers or b""))
    ]


def drained(spool: Spool, partitions: int = 3) -> list[ExternalRecord]:
    """Take all out."""
    found, last = list[ExternalRecord](), 0
    while (batch := spool.batch(partitions)) is not None:
        assert batch.last > last, f"the batch up to record {last} was acknowledged, and comes again"
        found, last = found + batch.records, batch.last
        spool.acknowledge(batch)
    return found


def numbered(n: int) -> Spooled:
    """Return the n-th record: some have headers, and most have none."""
    return Spooled(KEYS[n % 4], b"%d" % n, n, encode_headers(HEADERS) if n % 7 == 0 else None)


@given(
    steps=st.lists(
        st.one_of(
            st.integers(1, 5),  # records to append
            st.sampled_from(["send", "acknowledge", "end"]),
        ),
        max_size=30,
    )
)
def test_records_keep_their_order_and_numbers_through_any_end(steps: list[int | str]) -> None:
    """Sent again and again, acknowledged or not: each is new once, in its order within a partition."""
    with tempfile.TemporaryDirectory() as folder:
        spool, sent, kept, batch = Spool(Path(folder) / "t.db", "t", ROOMY), list[ExternalRecord](), 0, None
        for step in steps:
            if isinstance(step, int):
                assert spool.append([numbered(n) for n in range(kept, kept + step)])
                kept += step
            elif step == "send":
                batch = spool.batch(3)
                sent += [] if batch is None else batch.records
            elif step == "acknowledge" and batch is not None:
                spool.acknowledge(batch)
                batch = None
            elif step == "end":
                spool.close()
                spool, batch = Spool(Path(folder) / "t.db", "t", ROOMY), None
        sent += drained(spool)
        assert len(spool) == 0
        spool.close()
    for record in sent:
        given = HEADERS if int(record.value or b"") % 7 == 0 else ()
        assert decode_headers(record.headers or b"")[:-2] == given
    values = new(sent)
    assert Counter(values) == Counter(b"%d" % n for n in range(kept))
    for partition in range(3):
        mine = {record.value for record in sent if record.partition.partition == partition}
        numbers = [int(value or b"") for value in values if value in mine]
        assert numbers == sorted(numbers)


def test_a_spool_of_an_earlier_release_goes_on(tmp_path: Path) -> None:
    """Records of 0.4.0, whose table had no headers, leave before new ones."""
    path = tmp_path / "t.db"
    with closing(sqlite3.connect(path)) as file:
        file.executescript(
            "CREATE TABLE record (id INTEGER PRIMARY KEY, key BLOB, value BLOB, timestamp_ms INTEGER NOT NULL);"
            "INSERT INTO record VALUES (7, x'61', x'31', 5)"
        )
    spool = Spool(path, "t", ROOMY)
    spool.append([Spooled(b"a", b"2", 6, encode_headers((("h", b"x"),)))])
    found = drained(spool, 1)
    spool.close()
    assert [(each.value, len(decode_headers(each.headers or b""))) for each in found] == [(b"1", 2), (b"2", 3)]


def test_an_earlier_release_refuses_headers_and_takes_all_else(tmp_path: Path) -> None:
    """0.4.0 would have sent the records without them: what it asks first has an error that says what to do."""
    headers = encode_headers((("h", b"x"), ("h", None)))

    def counted() -> int:  # as 0.4.0 does when it opens a spool
        with closing(sqlite3.connect(tmp_path / "t.db")) as file:
            file.executescript("CREATE TABLE IF NOT EXISTS record (id INTEGER PRIMARY KEY, key BLOB, value BLOB);")
            count: int = file.execute("SELECT count(*) FROM record").fetchone()[0]
            return count

    for _ in range(2):
        with closing(Spool(tmp_path / "t.db", "t", ROOMY)) as spool:
            spool.append([Spooled(b"a", b"1", 1)])
        assert counted() == 1
        with closing(Spool(tmp_path / "t.db", "t", ROOMY)) as spool:
            spool.append([Spooled(b"a", b"2", 2, headers)])
        with pytest.raises(sqlite3.OperationalError, match="of a later release of Grete: upgrade"):
            counted()
        with closing(Spool(tmp_path / "t.db", "t", ROOMY)) as spool:
            spool.append([Spooled(b"a", b"3", 3)])
            found = drained(spool, 1)
        assert [(each.value, len(decode_headers(each.headers or b""))) for each in found] == [
            (b"1", 2),
            (b"2", 4),
            (b"3", 2),
        ]
        assert counted() == 0


def test_a_topic_that_has_grown_gets_a_session_of_its_own(tmp_path: Path) -> None:
    """Other partitions mean other numbers: they must not be taken for those that were given."""
    spool = Spool(tmp_path / "t.db", "t", ROOMY)
    spool.append([Spooled(b"a", b"1", 0)])
    first = drained(spool, 2)
    spool.append([Spooled(b"a", b"2", 0)])
    then = drained(spool, 3)
    spool.close()
    assert len({decode_headers(record.headers or b"")[0] for record in first + then}) == 2


def test_a_full_spool_takes_nothing_until_it_is_drained(tmp_path: Path) -> None:
    """The bound is that of the files; a record that was not kept has no number, so it leaves no gap."""
    bound = 1 << 20
    spool, kept = Spool(tmp_path / "t.db", "t", bound), 0
    while spool.append([Spooled(None, b"%0100d" % kept, 0)]):
        kept += 1
    assert bound // 200 < kept < bound // 100
    assert not spool.append([Spooled(None, b"", 0)] * 100)
    assert len(spool) == kept
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= bound + WAL_BYTES_MAX + (1 << 20)
    batch = spool.batch(2)
    assert batch is not None
    spool.acknowledge(batch)
    assert spool.append([Spooled(None, b"%0100d" % kept, 0)])
    values = new(batch.records + drained(spool, 2))
    assert sorted(int(value or b"") for value in values) == list(range(kept + 1))
    spool.close()


def test_disk_space_of_an_outage_is_given_back(tmp_path: Path) -> None:
    """The file is small again when all has arrived."""
    spool = Spool(tmp_path / "t.db", "t", ROOMY)
    for _ in range(20):
        spool.append([Spooled(None, bytes(1_000_000), 0)])
    before = len(drained(spool, 1))
    spool.close()
    assert before == 20
    assert (tmp_path / "t.db").stat().st_size < 1 << 20


def test_what_is_torn_off_was_never_sent(tmp_path: Path) -> None:
    """The files end anywhere behind what was synced: what is left begins as it was, and no number has two records."""
    spool = Spool(tmp_path / "t.db", "t", ROOMY)
    spool.append([Spooled(b"a", b"%d" % n, 0) for n in range(5)])
    batch = spool.batch(1)
    assert batch is not None
    wal = tmp_path / "t.db-wal"
    synced = wal.stat().st_size
    for n in range(5, 40):
        spool.append([Spooled(b"a", b"%d" % n, 0)])
    lengths = set[int]()
    for length in range(synced, wal.stat().st_size + 1, 1_111):
        torn = tmp_path / f"torn-{length}"
        torn.mkdir()
        shutil.copy(tmp_path / "t.db", torn)
        (torn / "t.db-wal").write_bytes(wal.read_bytes()[:length])
        left = Spool(torn / "t.db", "t", ROOMY)
        left.append([Spooled(b"a", b"after", 0)])
        values = new(batch.records + drained(left, 1))
        left.close()
        lengths.add(len(values))
        assert values == [*(b"%d" % n for n in range(len(values) - 1)), b"after"]
        assert len(values) >= 6
    assert len(lengths) > 20
    spool.close()


def test_what_goes_to_the_log_is_on_the_disk_before(tmp_path: Path) -> None:
    """Else a power loss could give its number to another record; what only waits there is written without a sync."""
    spool = Spool(tmp_path / "t.db", "t", ROOMY)

    def level() -> object:
        return spool._sql.execute("PRAGMA synchronous").fetchone()[0]

    spool.append([Spooled(b"a", b"1", 0)])
    assert level() == 1  # NORMAL
    spool.batch(1)
    assert level() == 2  # FULL
    spool.append([Spooled(b"a", b"2", 0)])
    assert level() == 1
    spool.close()


def test_a_spool_is_for_its_user_alone(tmp_path: Path) -> None:
    """It holds the records of an outage, whatever the umask says: also the files that SQLite has beside it."""
    before = os.umask(0)
    try:
        spool = Spool(tmp_path / "t.db", "t", ROOMY)
        spool.append([Spooled(b"a", b"1", 0)])
    finally:
        os.umask(before)
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(modes, "0o600")
    assert {"t.db", "t.db-wal"} <= modes.keys()
    spool.close()


def test_a_damaged_spool_is_refused(tmp_path: Path) -> None:
    """It is said what to do; nothing is sent of it."""
    (tmp_path / "t.db").write_bytes(b"no database" * 1_000)
    with pytest.raises(Halted, match="the spool is damaged: move it away"):
        Spool(tmp_path / "t.db", "t", ROOMY)


def test_a_spool_belongs_to_one_process(tmp_path: Path) -> None:
    """Two of them would give two records one number."""
    spool = Spool(tmp_path / "t.db", "t", ROOMY)
    code = "import sys, pathlib, grete.feeds.spool as spool\nspool.Spool(pathlib.Path(sys.argv[1]), 't', 1)"
    command = [*forking.TEXT, code, str(tmp_path / "t.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "another process writes to this topic from here" in done.stderr
    spool.close()
    Spool(tmp_path / "t.db", "t", ROOMY).close()


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """A file in the way of the directory, or of the database."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="name a directory that you may write"):
        Spool(tmp_path / "file" / "t.db", "t", ROOMY)
    (tmp_path / "t.db").mkdir()
    with pytest.raises(ConfigError, match="the spool must be a file that you may write"):
        Spool(tmp_path / "t.db", "t", ROOMY)
