"""A log is opened by its name; a wrong name is explained."""

from pathlib import Path

import pytest

from grete.errors import ConfigError
from grete.logs.address import open_log
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
