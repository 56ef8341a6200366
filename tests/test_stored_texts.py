"""Texts that stand in logs, state, sinks and directories: words of the code change, these do not."""

from pathlib import Path

import msgspec

from framework.execution.deterministic import outputs, processor
from framework.execution.reserved_stores import STREAM_TIME, TURN, pin_key
from framework.job.directory import JobDirectory
from framework.job.metadata import pin_guarantee, pinned_settings
from framework.logs.embedded import EmbeddedLog
from framework.settings import Settings
from framework.sinks.sql import ACCOUNT, ACCOUNT_DDL
from framework.stores import rocksdb, sst_snapshot
from protocol.commit import SCHEMA_NAMES
from tasks.word_count import job


def test_keys_in_the_state_are_what_they_were() -> None:
    """A store of an earlier build is found under these keys."""
    assert (STREAM_TIME, TURN, pin_key(7)) == (b"stream time", b"turn", b"store 7")
    assert (outputs.AT, processor.CALLS) == (b"logical time", b"calls")
    assert all(outputs.is_of_outputs(key) for key in (b"digest t[1]", b"sent t[1]", b"released t[1]", b"end t[1]"))
    assert rocksdb.CHANGELOG_POSITION == b"pointer"


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
    manifest = msgspec.json.decode(msgspec.json.encode(sst_snapshot._Manifest(b"", {}, [])))
    assert sorted(manifest) == ["files", "pointer", "stores"]


def test_pinned_texts_are_what_they_were(tmp_path: Path) -> None:
    """A job that an earlier build has pinned goes on under the settings of now."""
    log = EmbeddedLog(tmp_path / "log.db")
    sequenced = Settings(output_delivery="sequenced")
    pin_guarantee(log, job.name, sequenced, "deterministic")
    assert log.meta_get("guarantee") == b"exactly-once (deterministic, read-back)"
    assert pinned_settings(job, log, Settings()) == sequenced
    directory = JobDirectory(tmp_path)
    assert directory.state("t-0") == tmp_path / "state" / "t-0"
    assert directory.prebuilt("t-0") == tmp_path / "prebuilt" / "t-0"
    log.close()


def test_the_account_of_a_database_has_its_columns() -> None:
    """Rows that are there say which checkpoint was applied last, in the column ``checkpoint_id``."""
    assert ACCOUNT == "grete_applied"
    assert "version BIGINT NOT NULL, PRIMARY KEY (job, task)" in ACCOUNT_DDL
