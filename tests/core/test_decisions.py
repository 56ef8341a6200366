"""Digests of decisions and releases, and their use by a successor (D2, D5)."""

from zlib import crc32

import pytest

from grete.core import actions as do
from grete.errors import Halted
from grete.protocol.changelog import (
    ChangelogType,
    TakenRows,
    decode_changelog_header,
    decode_input_decision,
    decode_output_release,
    encode_input_decision,
    encode_output_release,
)
from tests.core.deterministic.scenario import OUTSIDE
from tests.core.deterministic.test_releases import sink
from tests.core.deterministic.test_task import source
from tests.core.streams import A0, SINK, SOURCE


def test_a_replay_says_which_rows_were_taken() -> None:
    """A decision holds the last offset and a digest of its rows, and asks for exactly these again (D2)."""
    task = source()
    task.take("x", "y")
    [value] = [v for _, v in task.log.rows[SOURCE.changelog] if v[0] & 15 == ChangelogType.INPUT_DECISION]
    rows = TakenRows(1, crc32(b"x y"))
    assert (value[0], decode_input_decision(value).rows) == (0x2B, rows)
    after = task.successor().start()
    assert [action.rows for action in after.done if isinstance(action, do.ProcessExternal)] == [rows]


def test_a_decision_of_the_first_format_is_replayed() -> None:
    """A log of the release before has decisions without a digest: they are replayed as that release did (D2)."""
    task = source()
    task.take("x", "y")
    rows = task.log.rows[SOURCE.changelog]
    for index, (time_ms, value) in enumerate(rows):
        if value[0] == 0x2B:
            old = decode_input_decision(value)._replace(rows=None)
            rows[index] = (time_ms, encode_input_decision(decode_changelog_header(value), old))
    after = task.successor().start()
    assert after.names == ["x", "y"]
    assert [action.rows for action in after.done if isinstance(action, do.ProcessExternal)] == [None]


def test_a_decision_below_the_position_halts() -> None:
    """Rows are never taken twice: a changelog that says so is damaged (D2)."""
    task = source()
    task.take("x")
    [value] = [v for _, v in task.log.rows[SOURCE.changelog] if v[0] & 15 == ChangelogType.INPUT_DECISION]
    header = decode_changelog_header(value)
    assert decode_input_decision(value).first_offset == 0
    again = bytearray(value)
    again[5:13] = (header.seq + 1).to_bytes(8, "big")
    task.log.append(SOURCE.changelog, bytes(again))
    with pytest.raises(Halted, match="from offset 0 on, but the one before ends at 1"):
        task.successor().start()


def test_each_release_says_what_was_released() -> None:
    """A digest for each release, up to its last record; one of the first format, by the release before, has none."""
    task, b0 = sink()
    for name, t in (("x", 100), ("y", 110), ("z", 120)):
        b0.send((name, t, A0))
        b0.progress(t)
        task.read()
    rows = task.log.rows[SINK.changelog]
    [_, old, _] = [index for index, (_, value) in enumerate(rows) if value[0] == 0x2D]
    time_ms, value = rows[old]
    rows[old] = (
        time_ms,
        encode_output_release(decode_changelog_header(value), decode_output_release(value)._replace(digests=None)),
    )
    after = task.successor().start()
    assert after.core.start_up.fold.since.released == {OUTSIDE: 3}
    assert after.core.start_up.fold.since.released_digests == {OUTSIDE: [(1, crc32(b"x")), (3, crc32(b"xyz"))]}
