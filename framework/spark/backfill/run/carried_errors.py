"""Carries an error of ours from an executor to Spark's driver, with its class and fields.

Spark hands on only the text of what a Python process raised, so the text is a line of JSON.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from grete import errors
from grete.errors import FrameworkError
from grete.protocol.errors import DecodeError

_LINE = re.compile(r"CarriedError: (\{.*\})\s*$", re.MULTILINE)


class CarriedError(Exception):
    """An error of ours as a line of JSON; only Spark sees it."""


@contextmanager
def carried() -> Iterator[None]:
    """Raise, in an executor, an error of ours as one that Spark can carry."""
    try:
        yield
    except FrameworkError as error:
        kind = next(base for base in type(error).__mro__ if base.__module__ == errors.__name__)
        raise CarriedError(json.dumps({"class": kind.__name__, **error.plain()})) from error
    except DecodeError as error:
        raise CarriedError(json.dumps({"class": FrameworkError.__name__, "error": str(error)})) from error


@contextmanager
def unpacked() -> Iterator[None]:
    """Raise, in Spark's driver, the error that an executor has carried, without Spark's trace."""
    try:
        yield
    except FrameworkError:
        raise
    except Exception as error:
        found = _LINE.findall(str(error))
        if not found:
            raise
        plain = json.loads(found[-1])
        kind: type[FrameworkError] = getattr(errors, plain["class"])
        raise kind.from_plain(plain) from None
