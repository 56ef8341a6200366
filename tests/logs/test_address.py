"""A log is opened by its name; a wrong name is explained."""

from pathlib import Path
from typing import Any

import pytest

from grete.errors import ConfigError
from grete.logs.address import LogAddress, open_log, open_reader
from grete.logs.embedded import EmbeddedLog
from grete.testing.broker import Broker


def test_the_embedded_log_is_opened_at_its_path(tmp_path: Path) -> None:
    """``embedded`` is the file that was named."""
    log = open_log("embedded", tmp_path / "log.db")
    assert isinstance(log, EmbeddedLog)
    assert (tmp_path / "log.db").exists()
    log.close()


@pytest.mark.kafka
def test_kafka_is_opened_by_its_address(kafka_broker: Broker, tmp_path: Path) -> None:
    """``kafka://`` and one or more addresses connect to that cluster."""
    log = open_log(f"kafka://{kafka_broker.bootstrap},{kafka_broker.bootstrap}", tmp_path)
    assert log.partitions("no-such-topic") is None
    log.close()


@pytest.mark.parametrize(
    "url", ["", "kafka", "kafka://", "kafka://host", "kafka://host:1,", "kafka://u:" + "pass@host:1", "x"]
)
def test_other_names_are_refused(url: str, tmp_path: Path) -> None:
    """Any other address is a ConfigError that says how to write it, without the password in it."""
    with pytest.raises(ConfigError, match=r"write embedded or kafka://host:port") as caught:
        open_log(url, tmp_path)
    assert "pass@" not in str(caught.value)


class OwnReader:
    """The reading half."""

    def __init__(self, place: str) -> None:
        self.place = place


class OwnLog(OwnReader):
    """A log that is named by its class."""

    reader = OwnReader


def test_a_log_of_ones_own_is_made_by_its_class(tmp_path: Path) -> None:
    """The rest of the address is its place; a command that only reads gets the reading half."""
    url = f"{__name__}:OwnLog:here://is:it"
    made: Any = open_log(url, tmp_path)
    read: Any = open_reader(LogAddress(url), tmp_path)
    assert (type(made), type(read)) == (OwnLog, OwnReader)
    assert made.place == read.place == "here://is:it"
    assert not LogAddress(url).on_kafka


@pytest.mark.parametrize("url", ["no.such_module:Log:x", f"{__name__}:NoLog:x", f"{__name__}:OwnReader:x"])
def test_a_class_that_is_not_there_is_named(url: str, tmp_path: Path) -> None:
    """With the way out; so is one that has no class for what only reads."""
    with pytest.raises(ConfigError, match="name a module that can be imported, and a class in it with a reader"):
        open_reader(LogAddress(url), tmp_path)
