"""Makes the bytes of what a task sends, where that is more than a call of a serde, and says why a serde refused it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from grete.api.serdes.serde import encode_error, one_key_serde
from grete.api.topics.topic import Topic, encode_record
from grete.errors import FrameworkError, SerdeError

SendFunction = Callable[..., None]  # Output.send


def encoded_first(topic: Topic[Any, Any], send: SendFunction) -> SendFunction:
    """Return the sender of a topic with a schema registry, whose serdes have a say in headers; ``send`` takes bytes."""
    topic = replace(topic, key=one_key_serde(topic.key))

    def encoding(key: Any, value: Any, *, headers: Sequence[tuple[str, bytes | None]] = (), **more: Any) -> None:
        try:
            raw_key, raw_value, headers = encode_record(topic, key, value, headers)
        except Exception as error:
            raise refused(topic, key, value, error) from error
        send(raw_key, raw_value, headers=headers, **more)

    return encoding


def refused(topic: Topic[Any, Any], key: object, value: object, cause: Exception) -> Exception:
    """Return the SerdeError for the half of a record that its serde refuses; an error that is not its own passes."""
    where = f"output to {topic.name}: "
    if isinstance(cause, SerdeError):
        return SerdeError(f"{where}{cause}")
    if isinstance(cause, FrameworkError):
        return cause
    try:
        if key is not None:
            topic.key.encode(key)
    except Exception:  # noqa: BLE001  # whatever the serde raised: it was the key
        return encode_error(topic.key, key, cause, where)
    return encode_error(topic.value, value, cause, where, key=key)
