"""The base of the contracts: an error names the broken clause."""

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import pytest


class ContractBroken(AssertionError):
    """A back end does not keep a clause of its contract. The text has the clause, and the cause has the difference."""


class Contract:
    """Tests of a back end. The docstring of each test is a clause of the contract; ``port`` is what implements it."""

    port: ClassVar[str]

    def __init_subclass__(cls) -> None:
        """Let each test of the class name its clause when it fails."""
        for name, test in list(vars(cls).items()):
            if name.startswith("test_"):
                setattr(cls, name, _naming_its_clause(test))


def _naming_its_clause(test: Callable[..., None]) -> Callable[..., None]:
    clause = " ".join((test.__doc__ or test.__name__).split())

    @functools.wraps(test)
    def checked(self: Contract, *arguments: Any, **named: Any) -> None:
        __tracebackhide__ = True
        try:
            test(self, *arguments, **named)
        except (Exception, pytest.fail.Exception) as error:
            raise ContractBroken(f"the {self.port} breaks its contract: {clause}") from error

    return checked
