"""Settings by their texts: what is known, and what a person who has other names in mind is told."""

import pytest

from grete.errors import ConfigError
from grete.protocol.members import Heartbeat, decode_members_message, encode_members_message
from grete.settings import MACHINE_LENGTH_MAX, RENAMED, Settings, from_environment, with_texts

OF_RELEASE_0_1 = [
    "guarantee",
    "interval_ms",
    "frame_bytes_max",
    "batch_bytes_max",
    "early_memory_bytes_max",
    "early_bytes_max",
    "layer_bytes_max",
    "sink_bytes_max",
    "unacked_bytes_max",
    "unacked_ms_max",
    "lag_messages_max",
    "clean_bytes_max",
    "rocksdb_bytes",
    "history_ms",
    "heartbeat_ms",
    "release",
    "lease_ms",
    "label_ahead_ms",
    "shutdown_ms",
    "backoff_ms",
    "backoff_ms_max",
    "crashes_max",
]


def test_each_setting_of_release_0_1_is_known_or_has_its_new_name() -> None:
    """A renamed setting is never one of today, and its new name is one."""
    known = set(Settings.__struct_fields__)
    assert set(OF_RELEASE_0_1) - known == set(RENAMED)
    assert set(RENAMED.values()) <= known


@pytest.mark.parametrize(("before", "now"), RENAMED.items())
def test_an_old_name_is_told_the_new_one(before: str, now: str) -> None:
    """Whether it comes from --set or from the environment: it is never ignored."""
    for texts, environment in (({before: "1"}, {}), ({}, {f"GRETE_{before.upper()}": "1"})):
        with pytest.raises(ConfigError) as error:
            with_texts(from_environment(environment), texts)
        assert f"setting {before} of release 0.1 is called {now} now: write {now}=1 (--set)" in str(error.value)
        assert f"GRETE_{now.upper()}=1" in str(error.value)


@pytest.mark.parametrize(("before", "now"), [("read-back", "sequenced"), ("transaction", "transactional")])
def test_an_old_value_is_told_the_new_one(before: str, now: str) -> None:
    """Also under the old name of its setting."""
    for name in ("release", "output_delivery"):
        with pytest.raises(ConfigError, match=f"write output_delivery={now} "):
            with_texts(Settings(), {name: before})
    assert with_texts(Settings(), {"output_delivery": now}).output_delivery == now


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
