"""Bytes that something else has written, or a disk has changed: a code, a place and what to do, and no traceback."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from grete.cli import command_line
from grete.cli.doctor import embedded
from grete.cli.doctor.report import Report
from grete.core.changelog.damage import named
from grete.errors import Halted
from grete.halts import HaltCode
from grete.job.dead_letters import letter_of, serdes_of
from grete.job.directory import JobDirectory
from grete.ports import ExternalRecord, LogRow
from grete.protocol.changelog import (
    GENERATION_MAX,
    ChangelogHeader,
    ChangelogType,
    Claim,
    decode_changelog_header,
    encode_claim,
)
from grete.protocol.commit import encode_commit
from grete.protocol.errors import DecodeError
from grete.protocol.frames import encode_headers
from grete.protocol.ids import TopicPartition
from grete.state.read.checkpoints.commits import last_commit
from tasks.word_count import job
from tests.cli.test_run import grete

JOB = "tasks.word_count"
STRANGER = 65_534  # the id of a user without rights
CHANGELOG = TopicPartition("word-count.count-words.changelog", 0)
Typed = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which the word count has run."""
    folder = tmp_path_factory.mktemp("ran")
    grete("run", JOB, "--input", "sentences=-", cwd=folder, stdin="to be\nor not\n")
    return folder


@pytest.fixture
def typed(ran: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Typed:
    """Return a function that runs a command in this process; it raises each error but those that end with one line."""
    monkeypatch.chdir(ran)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["grete", *arguments])
        with pytest.raises(SystemExit) as ended:
            command_line()
        return int(ended.value.code or 0), capfd.readouterr().err

    return run


@pytest.fixture
def log_file(ran: Path) -> Path:
    """Return the file of the log, which is put back after the test."""
    return ran / ".grete" / "word-count" / "log.db"


def append(ran: Path, value: bytes | None) -> int:
    """Append a message to the changelog as somebody who may write there; return its offset."""
    log = JobDirectory(ran / ".grete" / "word-count").open_log(create=False)
    log.produce(0, 0, [ExternalRecord(CHANGELOG, None, value, 0, None)])
    while not (sent := log.poll()):
        log.wait(20)
    log.close()
    return sent[-1].offset


COMMANDS = ("checkpoints", "plan", "state scan", "state sizes", "changelog verify", "run")


@pytest.mark.parametrize("value", [b"", None, b"\xff\xfe hello", b'{"a":1}', b"\x28" + 40 * b"\0"])
def test_foreign_bytes_in_a_changelog_are_named_by_every_command(
    value: bytes | None, ran: Path, typed: Typed, log_file: Path
) -> None:
    """With code, changelog and offset: also by those that only look at its end, and by a start of the job."""
    before = log_file.read_bytes()
    offset = append(ran, value)
    try:
        for command in COMMANDS:
            words = command.split()
            store = ["counts"] if words[-1] == "scan" else []
            code, error = typed(*words, JOB, *store)
            assert code == 4, (command, error)
            assert error.startswith(f"grete: GRETE-H012: {CHANGELOG}, offset {offset}: "), command
            assert "restore the topic, or start the job under another name" in error
        found = looked_at(ran)
        assert f"GRETE-H012: {CHANGELOG}, offset {offset}: " in found
        assert "restore the topic, or start the job under another name" in found
    finally:
        restore(log_file, before)


def looked_at(ran: Path) -> str:
    """Return the doctor's text on the only task whose changelog keeps it from a start, which is an error."""
    report = Report()
    embedded.look(report, job, ran / ".grete" / "word-count")
    (error,) = [finding for finding in report.findings if finding.level != "ok"]
    assert (error.level, error.what, error.where) == ("error", "changelog", "count-words-0")
    return f"{error.value}; {error.remedy}"


@pytest.mark.parametrize("command", ["plan", "run", "state scan"])
def test_a_commit_that_no_graph_of_the_job_has_made_is_told_as_such(
    command: str, ran: Path, typed: Typed, log_file: Path
) -> None:
    """It may be of code that was called with apply, or of a stranger: both are said, with what was found and where."""
    before = log_file.read_bytes()
    log = JobDirectory(ran / ".grete" / "word-count").open_log(create=False)
    last, end = last_commit(log, CHANGELOG), log.bounds(CHANGELOG)[1]
    seq = decode_changelog_header(log.read(CHANGELOG, end - 1, 1)[0].value or b"").seq + 1
    log.close()
    assert last is not None
    forged = msgspec.structs.replace(
        last.commit, fingerprint=0xF0, checkpoint_id=2**61, previous=last.commit.checkpoint_id
    )
    append(ran, encode_commit(ChangelogHeader(ChangelogType.COMMIT, forged.generation, seq, 0), forged))
    try:
        code, error = typed(*command.split(), JOB, *["counts"] * command.endswith("scan"))
        assert code != 0
        assert "something else wrote" in error
        if command != "state scan":
            assert f"{CHANGELOG} (checkpoint {2**61}, generation {forged.generation})" in error
            assert "made under a graph of fingerprint 00000000000000f0, and this job has had" in error
            assert "made under a graph of fingerprint 00000000000000f0" in looked_at(ran)
    finally:
        restore(log_file, before)


def restore(log_file: Path, before: bytes) -> None:
    """Put the file of the log back as it was."""
    for extra in log_file.parent.glob("log.db-*"):
        extra.unlink()
    log_file.write_bytes(before)


def test_the_last_generation_that_a_message_can_have_is_refused(ran: Path, typed: Typed, log_file: Path) -> None:
    """No successor could claim the task: it says so, and does not crash until it is given up."""
    before = log_file.read_bytes()
    claim = Claim(b"x" * 16, "\x1b[2Jelsewhere", 1, 2**62)
    append(ran, encode_claim(ChangelogHeader(ChangelogType.CLAIM, GENERATION_MAX, 0, 0), claim))
    try:
        for command in ("run", "plan", "changelog verify"):
            code, error = typed(*command.split(), JOB)
            assert code == 4
            assert "GRETE-H012" in error
            assert f"generation {GENERATION_MAX} has claimed this task" in error
        assert f"generation {GENERATION_MAX} has claimed this task" in looked_at(ran)
        assert typed("changelog", "tail", JOB, "count-words", "0")[0] == 0  # its clock is no time that a calendar has
    finally:
        restore(log_file, before)


@pytest.mark.parametrize("value", [b"\xff\xfe", b"null", b"[]", b"{}", b'{"format":1}', b"7", b""])
def test_each_entry_of_the_metadata_that_is_damaged_is_named(
    value: bytes, ran: Path, typed: Typed, log_file: Path
) -> None:
    """Each damaged entry of the metadata ends a command with an error of Grete's, and nothing else."""
    before = log_file.read_bytes()
    log = JobDirectory(ran / ".grete" / "word-count").open_log(create=False)
    keys = [key for key, _ in log.read_metadata("word-count").meta_items("")]
    log.close()
    assert {"definition", "graph", "guarantee"} <= {*keys}
    for key in [*keys, "rescaled", "applying"]:
        log = JobDirectory(ran / ".grete" / "word-count").open_log(create=False)
        log.open_metadata("word-count").produce_with_meta([], {key: value})
        log.close()
        try:
            for command in ("plan", "checkpoints", "doctor"):
                code, error = typed(command, JOB)
                assert code in (0, 1, 2, 4), (key, command, error)
                assert "Traceback" not in error, (key, command)
        finally:
            restore(log_file, before)


def test_a_job_whose_metadata_is_put_back_goes_on(ran: Path, typed: Typed, log_file: Path) -> None:
    """Until then no start takes it."""
    before = log_file.read_bytes()
    log = JobDirectory(ran / ".grete" / "word-count").open_log(create=False)
    log.open_metadata("word-count").produce_with_meta([], {"graph": b"null"})
    log.close()
    code, error = typed("run", JOB)
    restore(log_file, before)
    assert (code, "GRETE-H024: the entry 'graph' of the job's metadata" in error) == (4, True)
    assert typed("run", JOB)[0] == 0


def test_a_letter_of_somebody_else_does_no_harm() -> None:
    """It has a header of its name, and no other; headers that cannot be decoded have their place in the error."""
    at = TopicPartition("letters", 0)
    cell = encode_headers([("grete.error", b"\xff"), ("grete.timestamp", b"soon")])
    foreign = LogRow(3, 0, 2**62, b"k", b"v", cell)
    letter = letter_of(at, foreign)
    assert letter is not None
    assert letter.timestamp_ms == 2**62
    assert [serde.name for serde in serdes_of(job, letter)] == ["bytes", "bytes"]
    with pytest.raises(Halted, match=r"letters\[0\], offset 3: the headers of this record cannot be decoded"):
        letter_of(at, foreign._replace(headers=b"\x01"))


def test_bytes_that_nothing_could_place_are_a_halt() -> None:
    """Damaged bytes at any place end the command line and a worker."""
    found = named(DecodeError("frame: 3 bytes, need 25"))
    assert isinstance(found, Halted)
    assert found.code is HaltCode.BYTES_DAMAGED
    assert "frame: 3 bytes, need 25" in str(found)
    other = KeyError("x")
    assert named(other) is other


def test_a_directory_of_another_user_is_named_by_every_command(ran: Path, typed: Typed) -> None:
    """The error names the owner, the caller and the remedy: exit code 2, and no traceback."""
    place, root = ran / ".grete", os.geteuid() == 0
    for command in COMMANDS:
        words = [*command.split(), JOB, *["counts"] * command.endswith("scan")]
        assert typed(*words)[0] == 0, command  # and all that it needs is imported
        place.chmod(0)
        ran.chmod(0o755)
        if root:
            os.seteuid(STRANGER)
        try:
            code, error = typed(*words)
        finally:
            if root:
                os.seteuid(0)
            place.chmod(0o700)
        assert code == 2, (command, error)
        assert error.startswith("grete: .grete/word-count"), command
        assert f"belongs to user {os.geteuid()}: run the command as that user" in error


def test_a_path_that_no_file_can_have_is_named(typed: Typed) -> None:
    """As is whatever else the system refuses."""
    code, error = typed("checkpoints", JOB, "--directory", 300 * "x")
    assert code == 1
    assert "File name too long: check the path" in error
