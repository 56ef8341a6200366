"""Texts in logs, state, sinks and directories: words of the code change, these do not.

Each was compared with commit dccb5a1, release 0.1. What runs of that release have left is read by tests/upgrade.
"""

import inspect
import os
import re
import sqlite3
from pathlib import Path
from typing import cast

import msgspec
import pytest

from grete import Job
from grete.api.jobs.definition import decode_definition, define
from grete.api.jobs.graph import FIRST_USER_STORE, RESERVED_STORES
from grete.api.jobs.versions import serdes_of
from grete.api.sinks.sink import Owner, Released
from grete.api.stateful import interval_join, windows
from grete.api.topics.reader import OUTPUT, PRODUCER, SEQ, TIME
from grete.core.graph.partitioners import Partitioner
from grete.core.graph.topology import changelog_topic, stream_topic
from grete.execution.deterministic import numbering, outputs, processor
from grete.execution.sinks import early_release, sink_account, sink_targets, waiting_outputs
from grete.execution.task_code import failures
from grete.execution.timing.reserved_stores import EVENT_TIME, STREAM_TIME, TURN, pin_key
from grete.feeds.folder import FolderFeed
from grete.job.directory import JobDirectory
from grete.job.key_metadata import pin, rescale_entry, rescaled
from grete.job.metadata import guarantee_entry, pinned_settings
from grete.logs.embedded import EmbeddedLog, schema
from grete.logs.kafka import topic_settings
from grete.logs.kafka.client import config
from grete.logs.kafka.read.reader import KafkaReader
from grete.logs.kafka.write import job_metadata
from grete.logs.kafka.write.job_metadata import KafkaMetadataReader
from grete.protocol.commit import SCHEMA_NAMES
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.sinks.files import FilesSink
from grete.sinks.sql import ACCOUNT_DDL
from grete.sinks.sql_released import RELEASED_DDL
from grete.spark.format import options
from grete.state.pins.graph_pinning import decode_graph, encode_graph
from grete.state.pins.prepare import prepare
from grete.stores import snapshot_folder
from grete.stores.rocksdb import sst_snapshot
from grete.stores.rocksdb import store as rocksdb
from grete.stores.spill import FileSpill
from grete.stores.store_directory import StoreDirectory
from tasks.word_count import CountWords, job

PARTITION = TopicPartition("t", 1)
TABLES = {
    "partition": [
        ("id", "INTEGER"),
        ("topic", "TEXT"),
        ("partition", "INTEGER"),
        ("start", "INTEGER"),
        ("next", "INTEGER"),
        ("fence", "INTEGER"),
        ("append_time_ms", "INTEGER"),
    ],
    "message": [
        ("id", "INTEGER"),
        ("append_time_ms", "INTEGER"),
        ("timestamp_ms", "INTEGER"),
        ("key", "BLOB"),
        ("value", "BLOB"),
        ("headers", "BLOB"),
        ("crc", "INTEGER"),
    ],
    "meta": [("key", "TEXT"), ("value", "BLOB")],
}
DEFINITION = (
    b'{"format":1,"outputs":{"word-totals":1},"public":["word-totals"],"stages":[{"inputs":["sentences"],'
    b'"name":"count-words","stores":[{"id":10,"key":{"name":"utf8"},"name":"counts","value":{"name":"int64"}}],'
    b'"windows":[]}]}'
)
GRAPH = (
    b'{"format": 1, "partitions": 1, "stages": [{"number": 0, "name": "count-words", "mode": "aligned"}], '
    b'"streams": [], "first": "60bd3e557a47599c", "known": []}'
)


def test_keys_in_the_state_are_what_they_were() -> None:
    """A store of an earlier build is found under these keys."""
    assert (STREAM_TIME, TURN, EVENT_TIME, pin_key(7)) == (b"stream time", b"turn", b"event time ", b"store 7")
    assert (outputs.AT, processor.CALLS) == (b"logical time", b"calls")
    keys = [outputs.digest_key, outputs._sent_key, outputs._released_key, outputs._end_key]
    names = [b"digest t[1]", b"sent t[1]", b"released t[1]", b"end t[1]"]
    assert [key(PARTITION) for key in keys] == names
    assert outputs.is_of_outputs(numbering.ONE)
    assert outputs._released_key(None) == b"released "
    assert all(outputs.is_of_outputs(name) for name in names)


def test_stores_have_their_numbers_and_families() -> None:
    """Changelogs name a store by its number, RocksDB by number and name."""
    assert RESERVED_STORES == {"_timers": 0, "_meta": 1, "_outbox": 2}
    assert FIRST_USER_STORE == 10
    assert rocksdb._family(10, "counts") == "10.counts"
    assert rocksdb.CHANGELOG_POSITION == b"pointer"


def test_the_outbox_has_its_keys_and_rows() -> None:
    """Outputs that an earlier build has committed are applied by this one."""
    assert (waiting_outputs.BLOCK, waiting_outputs.CLOSED) == (b"b", b"v")
    assert (sink_account._ACCOUNT, sink_account._NONCE) == (b"account", b"nonce")
    assert (sink_targets.FILES, sink_targets.TABLE) == ("files:", "table:")
    assert msgspec.json.encode(waiting_outputs.ClosedOutputs(5, 1, 2, 3, ["files:out"])) == b'[5,1,2,3,["files:out"]]'


def test_names_in_commits_are_those_of_the_schema() -> None:
    """Fields that have got another name are written under the old one."""
    assert SCHEMA_NAMES == {
        "checkpoint_id": "version",
        "rollback_history": "lineage",
        "bulk_write_id": "run_id",
        "frontiers": "fronts",
    }


def test_a_manifest_of_prebuilt_state_has_its_old_names() -> None:
    """A backfill of an earlier build may have left its files for a worker of this one."""
    manifest = sst_snapshot._Manifest(b"p", {10: "counts"}, [sst_snapshot.SstFile(10, "000000.sst", 3, 4)])
    assert msgspec.json.encode(manifest) == (
        b'{"pointer":"cA==","stores":{"10":"counts"},'
        b'"files":[{"store":10,"name":"000000.sst","size_bytes":3,"crc32":4}]}'
    )
    assert sst_snapshot._MANIFEST == "manifest.json"


def test_a_manifest_of_a_snapshot_has_its_names() -> None:
    """A worker of a later build takes what `grete snapshot` of this one has written."""
    files = [snapshot_folder.SnapshotFile("000009.sst", 3, "ab")]
    manifest = snapshot_folder.SnapshotManifest(
        job="job",
        task="count-0",
        fingerprint=7,
        offset=12,
        generation=2,
        checkpoint_id=1_000,
        nonce="00ff",
        stores={10: "counts"},
        files=files,
    )
    assert msgspec.json.encode(manifest) == (
        b'{"format":1,"job":"job","task":"count-0","fingerprint":7,"offset":12,"generation":2,"checkpoint_id":1000,'
        b'"nonce":"00ff","stores":{"10":"counts"},"files":[{"name":"000009.sst","size_bytes":3,"digest":"ab"}]}'
    )
    assert snapshot_folder._digest(b"") == "cae66941d9efbd404e4d88758ea67670"  # names of files: BLAKE2b, 16 bytes


def test_topics_have_their_names() -> None:
    """A job finds the topics, and on Kafka the metadata, that an earlier build has made."""
    assert changelog_topic("job", "count") == "job.count.changelog"
    assert stream_topic("job", "split", "words", "count") == "job.split.words.count"
    metadata = KafkaMetadataReader(cast("KafkaReader", None), "job")
    assert metadata.topic == "job.notes"
    assert (job_metadata.PINS, job_metadata.FEEDS) == (0, 1)
    assert [job_metadata._partition_of(key) for key in ("guarantee", "topic t", "feed/t/a", "feed-root/t")] == [
        0,
        0,
        1,
        1,
    ]


def test_topics_have_their_settings() -> None:
    """A topic that an earlier build has made is not refused for its settings."""
    assert topic_settings.STREAM == {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": "2097152",
    }
    assert topic_settings.COMPACTED == {"cleanup.policy": "compact"}


def test_clients_have_their_names() -> None:
    """Access rules and lag tools of a cluster name them; a transactional id fences the worker before."""
    assert config._DEFAULTS["both"]["client.id"] == "grete"
    assert options._GROUP == "grete-spark"


@pytest.mark.parametrize(
    ("modes", "settings", "pinned"),
    [
        ("aligned", Settings(), b"exactly-once"),
        ("aligned", Settings(processing_guarantee="at-least-once"), b"at-least-once"),
        ("aligned", Settings(processing_guarantee="none"), b"at-most-once"),
        ("aligned", Settings(processing_guarantee="at-most-once"), b"at-most-once-aligned"),
        ("deterministic", Settings(), b"exactly-once (deterministic)"),
        (
            "deterministic",
            Settings(output_delivery="sequenced"),
            b"exactly-once (deterministic, read-back)",
        ),
        (
            "deterministic,aligned",
            Settings(output_delivery="sequenced"),
            b"exactly-once (deterministic,aligned, read-back)",
        ),
    ],
)
def test_a_guarantee_is_pinned_as_it_was(tmp_path: Path, modes: str, settings: Settings, pinned: bytes) -> None:
    """A job that an earlier build has pinned goes on under the settings of now."""
    log = EmbeddedLog(tmp_path / "log.db")
    log.produce_with_meta([], guarantee_entry(log, job.name, settings, modes))
    assert log.meta_get("guarantee") == pinned
    assert guarantee_entry(log, job.name, settings, modes) == {}
    assert pinned_settings(job, log, Settings()) == settings
    log.close()


def test_keys_of_the_metadata_are_what_they_were(tmp_path: Path) -> None:
    """An entry of an earlier build is found, and read, under its key."""
    log = EmbeddedLog(tmp_path / "log.db")
    log.produce_with_meta([], {"rescaled": b'{"partitions": 1, "ends": [["t", 0, 7]]}'})
    assert rescaled(log, job, job.stages[0]) == (None, {TopicPartition("t", 0): 7})
    assert rescale_entry(1, 2, {PARTITION: 7}) == {"rescaled": b'{"partitions": 1, "before": 2, "ends": [["t", 1, 7]]}'}
    pin(log, "t", Partitioner.CRC32)
    assert log.meta_get("partitioner t") == b'{"format": 1, "partitioner": "crc32"}'
    log.create_topic("t", 1, plain=True)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a").write_text("x")
    assert [step.done for step in FolderFeed(log, "t", tmp_path / "folder").scan()]
    assert log.meta_get("feed-root/t") == str(tmp_path / "folder").encode()
    [(key, entry)] = log.meta_items("feed/")
    assert key == "feed/t/a"
    mtime_ns, size, digest, reason = msgspec.msgpack.decode(entry)
    assert (mtime_ns, size, len(digest), reason) == (-1, 1, 16, "")
    log.close()


def test_the_pinned_definition_and_graph_have_their_names(tmp_path: Path) -> None:
    """Later releases compare them field by field. A job of 0.3.0 or before has no version of its serdes there."""
    log = EmbeddedLog(tmp_path / "log.db")
    prepare(job, log, JobDirectory(tmp_path), Settings())
    assert log.meta_get("definition") == DEFINITION.replace(b'"stages"', b'"serdes":2,"stages"')
    assert serdes_of(decode_definition(DEFINITION)) == 1
    assert log.meta_get("graph") == GRAPH
    log.close()


def test_a_migrated_job_says_so_in_both() -> None:
    """The definition from which checkpoint on, and the graph to which version, in a format that others refuse."""
    migrated = Job("j", stages=[CountWords])
    assert "migrated" not in define(migrated, {})
    migrated.migrate(7)
    described = encode_graph(migrated.topology())
    assert described.startswith(b'{"format": 3, "partitions": 1, ')
    assert described.endswith(b', "known": [], "migrated": 2}')
    assert decode_graph("j", described).fingerprints() == migrated.topology().fingerprints()
    assert define(migrated, {})["migrated"] == 7


def test_the_log_file_is_what_it_was(tmp_path: Path) -> None:
    """Its number of format, its tables and the files beside it."""
    log = EmbeddedLog(tmp_path / "log.db")
    log.create_topic("t", 1)
    assert {path.name for path in tmp_path.iterdir()} >= {"log.db", "log.db-lock", "log.db-queue", "log.db-wal"}
    log.close()
    connection = sqlite3.connect(tmp_path / "log.db")
    pragmas = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
    assert pragmas == [0x47524554, 1]
    tables = {
        table: [(row[1], row[2]) for row in connection.execute(f"PRAGMA table_info({table})")] for table in TABLES
    }
    assert tables == TABLES
    assert schema.OFFSET_BITS == 40
    connection.close()


def test_a_directory_has_its_names(tmp_path: Path) -> None:
    """State, prebuilt state, locks and logs are found where an earlier build left them."""
    directory = JobDirectory(tmp_path)
    assert directory.state("t-0") == tmp_path / "state" / "t-0"
    assert directory.prebuilt("t-0") == tmp_path / "prebuilt" / "t-0"
    assert directory.worker_log(3) == tmp_path / "logs" / "worker-3.log"
    os.close(directory.lock_supervisor())
    assert (tmp_path / "supervisor.lock").exists()
    (tmp_path / "state" / "t-0.wiped-1").mkdir(parents=True)
    StoreDirectory(directory.state("t-0")).close()
    assert {path.name for path in (tmp_path / "state").iterdir()} == {"t-0", "t-0.lock"}
    FileSpill(tmp_path / "t-0.early")
    assert (tmp_path / "t-0.early" / "early.spill").exists()


def test_sinks_have_their_names(tmp_path: Path) -> None:
    """A file's name is the key of its application; rows say which checkpoint was applied last, in ``version``."""
    sink = FilesSink(str(tmp_path))
    sink.open(Owner("job", "count-0", "nonce"))
    assert sink.begin(5)
    sink.commit()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".part-count-0-owner", "part-count-0-5.jsonl"]
    assert (tmp_path / ".part-count-0-owner").read_text() == "job nonce"
    assert ACCOUNT_DDL == (
        "CREATE TABLE grete_applied (job VARCHAR(255) NOT NULL, task VARCHAR(255) NOT NULL, "
        "owner VARCHAR(64) NOT NULL, version BIGINT NOT NULL, PRIMARY KEY (job, task))"
    )


def test_early_releases_have_their_names(tmp_path: Path) -> None:
    """A sink is asked how far it is by these: names of files, columns of a table; the state has two kinds of key."""
    sink = FilesSink(str(tmp_path))
    sink.open(Owner("job", "count-0", "nonce"))
    assert sink.last_released(3) == Released(0, 0, 0)
    sink.release(0, Released(2, 1_700_000_000_000_000, 0xABC), [("out", b"1"), ("out", b"2")])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".part-count-0-g3",
        ".part-count-0-owner",
        "part-count-0-seq-000000000000001-000000000000002-1700000000000000-00000abc.jsonl",
    ]
    assert (tmp_path / ".part-count-0-owner").read_text() == "job nonce"
    assert RELEASED_DDL == (
        "CREATE TABLE grete_released (job VARCHAR(255) NOT NULL, task VARCHAR(255) NOT NULL, "
        "owner VARCHAR(64) NOT NULL, generation BIGINT NOT NULL, seq BIGINT NOT NULL, t BIGINT NOT NULL, "
        "digest BIGINT NOT NULL, PRIMARY KEY (job, task))"
    )
    assert (early_release._KEPT, early_release._ACCOUNT) == (b"e", b"released")
    account = early_release._Account(7, 5, 9, {"files:out": 7})
    assert msgspec.json.encode(account) == b'[7,5,9,{"files:out":7}]'


def test_headers_have_their_names() -> None:
    """Readers outside of the job look for them."""
    assert (OUTPUT, PRODUCER, SEQ, TIME) == ("grete", "grete.producer", "grete.seq", "grete.t")
    theirs = [("a", b"b")]
    assert numbering.cell_of((), b"j/s-0", 12, 34, one=True) == b"\0\0\0\1\0\5grete\0\0\0\x0b12 34 j/s-0"
    assert numbering.cell_of(theirs, b"j/s-0", 12, 34, one=False) == (
        b"\0\0\0\4\0\1a\0\0\0\1b\0\x0egrete.producer\0\0\0\5j/s-0\0\tgrete.seq\0\0\0\00212\0\7grete.t\0\0\0\00234"
    )
    assert (numbering.ONE, numbering.FORMAT) == (b"headers", b"\2")
    letters = "".join(Path(inspect.getfile(module)).read_text() for module in (failures, windows, interval_join))
    assert set(re.findall(r'"(grete\.\w+)"', letters)) == {
        *(
            f"grete.{name}"
            for name in ("error", "stage", "partition", "topic", "source", "offset", "index", "traceback", "timestamp")
        ),
        *(f"grete.{name}" for name in ("timer", "window", "start", "end", "final", "join", "side", "key_serde")),
        *(f"grete.{name}" for name in ("output", "sink", "checkpoint", "number", "idempotency_key")),
    }
