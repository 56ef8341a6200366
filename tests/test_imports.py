"""What an import loads: import-linter reads the source, this runs it.

The contracts in pyproject.toml judge what a module itself imports; here we see that what comes with it stays light.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = {"confluent_kafka", "psycopg", "pyspark", "pythonjsonlogger", "rich", "rocksdict", "sqlite3", "typer"}
BELOW = tuple(f"framework.{each}" for each in ("api", "core", "errors", "halts", "ports", "settings"))


def loaded_by(statement: str) -> set[str]:
    """Return the names of all modules that a fresh interpreter has loaded after the statement."""
    code = f"import sys; {statement}; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert not result.returncode, result.stderr
    return set(result.stdout.split())


@pytest.mark.parametrize("statement", ["import grete", "import protocol", "import framework.core"])
def test_import_loads_no_heavy_client(statement: str) -> None:
    """Importing the public API, the core or the wire format loads no Kafka client, store, Spark or command line."""
    assert loaded_by(statement) & HEAVY == set()


def test_core_loads_nothing_above_it() -> None:
    """All modules of the core together load no back end, runtime, simulation or command line of ours."""
    paths = (path.relative_to(ROOT) for path in (ROOT / "framework/core").rglob("[!_]*.py"))
    modules = sorted(".".join(path.with_suffix("").parts) for path in paths)
    loaded = loaded_by("import " + ", ".join(["framework.core", *modules]))
    assert [m for m in loaded if m.startswith("framework.") and not m.startswith(BELOW)] == []


def test_protocol_loads_none_of_the_framework() -> None:
    """The wire format can be used alone."""
    modules = sorted(f"protocol.{path.stem}" for path in (ROOT / "protocol").glob("[!_]*.py"))
    assert [m for m in loaded_by("import " + ", ".join(modules)) if m.split(".")[0] in ("framework", "tasks")] == []
