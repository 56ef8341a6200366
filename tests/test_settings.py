"""Settings by their texts: what is known, and what a person who has other names in mind is told."""

import pytest

from grete.errors import ConfigError
from grete.protocol.members import Heartbeat, decode_members_message, encode_members_message
from grete.settings import MACHINE_LENGTH_MAX, Settings, from_environment, with_texts


def test_an_unknown_setting_is_refused() -> None:
    """The error names all that are known."""
    with pytest.raises(ConfigError, match=r"unknown setting 'speed': known are processing_guarantee, checkpoint_inter"):
        from_environment({"GRETE_SPEED": "1"})


def test_a_choice_names_what_can_be_chosen() -> None:
    """The setting and its values, not a position in a document."""
    with pytest.raises(ConfigError) as error:
        with_texts(Settings(), {"processing_guarantee": "maybe"})
    told = "setting processing_guarantee = 'maybe': choose exactly-once or at-most-once or at-least-once or none"
    assert str(error.value) == told
    assert error.value.setting == "processing_guarantee"


@pytest.mark.parametrize("service", ["", "LOG_", "WORD_COUNT_"])
def test_what_kubernetes_injects_is_no_setting(service: str) -> None:
    """A service named "grete", or "grete-log", puts variables into each pod of its namespace."""
    names = ["SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_80_TCP"]
    names += [f"PORT_8080_UDP_{part}" for part in ("PROTO", "PORT", "ADDR")]
    assert from_environment({f"GRETE_{service}{name}": "tcp://10.0.0.1:80" for name in names}) == Settings()


def test_a_machine_has_a_name_that_a_heartbeat_holds() -> None:
    """A longer one was sent, and read by no one: the member hosted nothing."""
    assert Settings(machine="m" * MACHINE_LENGTH_MAX).machine
    with pytest.raises(ConfigError, match="setting machine has 201 characters: at most 200"):
        Settings(machine="m" * 201)
    longest = Heartbeat(member="a", session="b", machine="m" * MACHINE_LENGTH_MAX)
    assert decode_members_message(encode_members_message(longest)) == longest


@pytest.mark.parametrize(
    "hosts", ["a b", "https://jobs.example", "jobs.example:8080", "ok.example,-", "jöbs", "a" * 254, "a/b"]
)
def test_a_host_name_that_no_request_has_is_refused(hosts: str) -> None:
    """It was taken, and the page answered status 421 under the name that was meant."""
    with pytest.raises(ConfigError, match="is no host name: write names as a browser asks for them") as error:
        Settings(http_hosts=hosts)
    assert error.value.setting == "http_hosts"
    assert Settings(http_hosts="jobs.example, Grete_2.Internal.,").hosts == ("jobs.example", "grete_2.internal")
