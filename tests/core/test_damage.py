"""Damaged bytes are a halt with their place; other errors pass unchanged."""

import pytest

from grete.core.changelog.damage import check_generation, damaged, entry, message, named
from grete.errors import ConfigError, Halted
from grete.halts import HaltCode
from grete.protocol.changelog import GENERATION_MAX
from grete.protocol.errors import DecodeError, UnsupportedFormat
from grete.protocol.ids import TopicPartition

CHANGELOG = TopicPartition("job.count.changelog", 2)


def test_a_message_is_named_by_its_place() -> None:
    """Changelog, offset, code and advice; of a format that is not known, the other advice, too."""
    with pytest.raises(Halted) as ended, message(CHANGELOG, 7):
        raise DecodeError("3 bytes, need 17")
    assert ended.value.code is HaltCode.CHANGELOG_DAMAGED
    assert (ended.value.partition, ended.value.offset) == (CHANGELOG, 7)
    assert "job.count.changelog[2], offset 7: 3 bytes, need 17; the changelog is damaged: restore" in str(ended.value)
    assert "format 9; or the changelog" in str(damaged(CHANGELOG, 7, UnsupportedFormat("format 9")))
    with message(CHANGELOG, 7):
        pass


def test_an_entry_is_named_by_its_key() -> None:
    """The halt names the entry, whatever its decoder raises, unless the error itself says what to do."""
    for error in (ValueError("no JSON"), KeyError("format"), AssertionError()):
        with (
            pytest.raises(Halted, match=r"GRETE-H024: the entry 'graph' of the job's metadata cannot be read"),
            entry("graph"),
        ):
            raise error
    with pytest.raises(ConfigError, match="a later release"), entry("graph"):
        raise ConfigError("a later release has written it")
    with entry("graph"):
        pass


def test_bytes_without_a_place_are_a_halt() -> None:
    """Any other error is returned as it is."""
    found = named(DecodeError("what"))
    assert isinstance(found, Halted)
    assert found.code is HaltCode.BYTES_DAMAGED
    other = ValueError("what")
    assert named(other) is other


def test_generations_end() -> None:
    """Behind the last one no process can claim a task."""
    check_generation(CHANGELOG, GENERATION_MAX)
    with pytest.raises(Halted, match=f"generation {GENERATION_MAX} has claimed this task"):
        check_generation(CHANGELOG, GENERATION_MAX + 1)
