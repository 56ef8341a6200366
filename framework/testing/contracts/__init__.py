"""Contracts of logs, state stores, sinks and sources, as tests for any back end: Grete's own pass them.

They need pytest. Subclass a contract in a test module, say how your back end is opened, and run pytest:

    import pytest
    from grete.testing.contracts import StoreContract

    class TestMyStore(StoreContract):
        @pytest.fixture
        def open_store(self, tmp_path):
            return lambda names: MyStore(tmp_path / "task", names)

Each test is one clause. A test that fails raises ContractBroken, whose text is the clause.
"""

import pytest

# Before the imports: the differences that a failed assertion shows come from pytest's own reading of the modules.
pytest.register_assert_rewrite(
    *(f"{__name__}.{name}" for name in ("fenced_log", "log", "log_world", "metadata", "sink", "source", "store"))
)

from grete.testing.contracts.clauses import ContractBroken
from grete.testing.contracts.fenced_log import FencedLogContract
from grete.testing.contracts.log import LogContract
from grete.testing.contracts.log_world import LogWorld
from grete.testing.contracts.metadata import MetadataContract
from grete.testing.contracts.sink import EarlySinkContract, SinkContract, SinkWorld
from grete.testing.contracts.source import SourceContract, SourceWorld
from grete.testing.contracts.store import StoreContract

__all__ = [
    "ContractBroken",
    "EarlySinkContract",
    "FencedLogContract",
    "LogContract",
    "LogWorld",
    "MetadataContract",
    "SinkContract",
    "SinkWorld",
    "SourceContract",
    "SourceWorld",
    "StoreContract",
]
