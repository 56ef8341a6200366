"""A schema registry, and how a job knows it."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from grete import SchemaRegistry
from tests.support.registry import Registry, running


@pytest.fixture
def served() -> Iterator[Registry]:
    """A registry."""
    with running() as registry:
        yield registry


@pytest.fixture
def registry(served: Registry) -> Iterator[SchemaRegistry]:
    """Yield the declaration of the registry in a job."""
    with closing(SchemaRegistry(served.url)) as declared:
        yield declared
