"""Conditions that choose dead letters: those of ``grete dlq --where``, and of the page, which makes such a command."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from grete.api.jobs.job import Job
from grete.api.serdes.serde import Serde
from grete.errors import ConfigError
from grete.job.dead_letters import Letter, serdes_of
from grete.protocol.frames import encode_headers
from grete.state.read.shown import decoded

TOLD = "stage", "topic", "source", "window", "join", "timer"  # headers of a letter that are to equal the text
FIELDS = ("dlq", "partition", "offset", "error", "class", *TOLD, "key", "from", "to")


def condition(where: Sequence[str]) -> Callable[[Job, Letter], bool]:
    """Return the conditions FIELD=TEXT, which must all hold. A key is given as its text, or as it is shown.

    Raises ConfigError for what is no FIELD=TEXT, naming the fields, and for a time that is none.
    """
    tests = [_test(each) for each in where]
    return lambda job, letter: all(test(job, letter) for test in tests)


def _test(each: str) -> Callable[[Job, Letter], bool]:
    field, equals, text = each.partition("=")
    if not equals or field not in FIELDS:
        raise ConfigError(f"--where {each}: write FIELD=TEXT, with one of the fields {', '.join(FIELDS)}")
    match field:
        case "dlq":
            return lambda _, letter: letter.at.topic == text
        case "partition":
            return lambda _, letter: str(letter.at.partition) == text
        case "offset":
            return lambda _, letter: str(letter.offset) == text
        case "error":
            return lambda _, letter: text in letter.told["error"]
        case "class":
            return lambda _, letter: letter.error_class == text
        case "key":
            return lambda job, letter: is_key(
                serdes_of(job, letter)[0], letter.key, encode_headers(letter.headers), text
            )
        case "from" | "to":
            at_ms, begins = time_ms(field, text), field == "from"
            return lambda _, letter: (letter.timestamp_ms >= at_ms) is begins
        case _:
            return lambda _, letter: letter.told.get(field, "") == text


def is_key(serde: Serde[Any], key: bytes | None, headers: bytes | None, text: str) -> bool:
    """Tell whether a key is this text, or is shown as it."""
    return (key or b"").decode(errors="replace") == text or decoded(serde, key, headers) == text


def time_ms(field: str, text: str) -> int:
    """Return a time in ISO 8601 in ms since 1970; without a zone it is UTC. Raises ConfigError."""
    try:
        time = datetime.fromisoformat(text)
        return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1_000)
    except (ValueError, OverflowError):
        raise ConfigError(
            f"{field}={text}: this is no time: write one such as 2026-11-01, 2026-11-01T09:30 or "
            "2026-11-01T09:30:05+01:00; without a zone it is UTC"
        ) from None
