"""Imports of an import: import-linter reads the source, this runs it.

The contracts in pyproject.toml judge what a module itself imports; here we see that what comes with it stays light.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = {"confluent_kafka", "psycopg", "pyspark", "pythonjsonlogger", "rich", "rocksdict", "sqlite3", "typer"}
_BELOW = "api", "core", "errors", "halts", "open_transaction", "ports", "protocol", "quoting", "settings"
BELOW = tuple(f"grete.{each}" for each in _BELOW)


def loaded_by(statement: str) -> set[str]:
    """Return the names of all modules that a fresh interpreter has loaded after the statement."""
    code = f"import sys; {statement}; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert not result.returncode, result.stderr
    return set(result.stdout.split())


@pytest.mark.parametrize("statement", ["import grete", "import grete.protocol", "import grete.core"])
def test_import_loads_no_heavy_client(statement: str) -> None:
    """Importing the public API, the core or the wire format loads no Kafka client, store, Spark or command line."""
    assert loaded_by(statement) & HEAVY == set()


def test_core_loads_nothing_above_it() -> None:
    """All modules of the core together load no back end, runtime, simulation or command line of ours."""
    paths = (path.relative_to(ROOT / "framework") for path in (ROOT / "framework/core").rglob("[!_]*.py"))
    modules = sorted(".".join(["grete", *path.with_suffix("").parts]) for path in paths)
    loaded = loaded_by("import " + ", ".join(["grete.core", *modules]))
    assert [m for m in loaded if m.startswith("grete.") and not m.startswith(BELOW)] == []


def test_protocol_loads_none_of_the_framework() -> None:
    """The wire format can be used alone: with it comes only the list of public names."""
    modules = sorted(f"grete.protocol.{path.stem}" for path in (ROOT / "protocol").glob("[!_]*.py"))
    loaded = loaded_by("import " + ", ".join(modules))
    ours = [m for m in loaded if m.split(".")[0] in ("grete", "tasks")]
    assert [m for m in ours if not f"{m}.".startswith("grete.protocol.")] == ["grete"]
