"""Errors about bytes that cannot be read, or cannot be there: which ones, where, and what to do."""

from collections.abc import Iterator
from contextlib import contextmanager

from grete.errors import FrameworkError, Halted
from grete.halts import HaltCode
from grete.protocol.changelog import GENERATION_MAX
from grete.protocol.errors import DecodeError, UnsupportedFormat
from grete.protocol.ids import TopicPartition

DAMAGED = "the changelog is damaged: restore the topic, or start the job under another name"


def unreadable(error: DecodeError) -> str:
    """Return the text for a message that cannot be decoded."""
    return f"{error}; {'or ' if isinstance(error, UnsupportedFormat) else ''}{DAMAGED}"


def damaged(changelog: TopicPartition, offset: int, error: DecodeError) -> Halted:
    """Return the error for a message of a changelog that cannot be decoded."""
    return Halted(
        f"{changelog}, offset {offset}: {unreadable(error)}",
        partition=changelog,
        offset=offset,
        code=HaltCode.CHANGELOG_DAMAGED,
    )


@contextmanager
def message(changelog: TopicPartition, offset: int) -> Iterator[None]:
    """Decode a message of a changelog in here. Raises Halted if that cannot be done."""
    try:
        yield
    except DecodeError as error:
        raise damaged(changelog, offset, error) from error


@contextmanager
def entry(key: str) -> Iterator[None]:
    """Decode an entry of a job's metadata in here. Raises Halted if it is not what Grete writes there."""
    try:
        yield
    except FrameworkError:
        raise
    except Exception as error:  # whatever a decoder raises: these are bytes from outside
        raise Halted(
            f"the entry {key!r} of the job's metadata cannot be read ({type(error).__name__}: {error}): something else "
            "wrote there, or its bytes were changed: restore the log (on Kafka the topic JOB.notes), or start the job "
            "under another name",
            code=HaltCode.METADATA_DAMAGED,
        ) from error


def named(error: Exception) -> Exception:
    """Return the error to show: a halt for bytes that could not be decoded, any other as it is."""
    if not isinstance(error, DecodeError):
        return error
    code = HaltCode.BYTES_DAMAGED
    halted = Halted(f"what was read cannot be decoded: {error}. {code.remedy}", code=code)
    halted.__cause__ = error
    return halted


def check_generation(changelog: TopicPartition, generation: int) -> None:
    """Raise Halted if no message can have this generation: the last one that can be was claimed before."""
    if generation > GENERATION_MAX:
        raise Halted(
            f"{changelog}: generation {GENERATION_MAX} has claimed this task, and it is the last that there can be: no "
            f"process of Grete counts that far, so something else wrote there; {DAMAGED}",
            partition=changelog,
            code=HaltCode.CHANGELOG_DAMAGED,
        )
