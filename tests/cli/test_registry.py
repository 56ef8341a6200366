"""A job with a schema registry, as real workers run it: by the commands, with a registry beside them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from grete import SchemaRegistry, Topic, utf8
from tests.support.registry import Registry, running

ROOT = Path(__file__).parents[2]


@pytest.fixture
def served() -> Iterator[Registry]:
    """A registry of this test."""
    with running() as registry:
        yield registry


@pytest.mark.chaos
def test_real_workers_use_a_registry(served: Registry, tmp_path: Path) -> None:
    """The commands write and read by it; a start whose schema it refuses has exit code 2 and makes no topic."""
    job = str(ROOT / "tasks" / "registry.py")

    def grete(*arguments: str, code: int = 0) -> str:
        environment = {**os.environ, "SCHEMA_REGISTRY": served.url}
        command = [sys.executable, "-m", "grete.cli", *arguments, "--directory", str(tmp_path / "job")]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=100, cwd=ROOT, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stderr if code else done.stdout

    with closing(SchemaRegistry(served.url)) as registry:
        payments = Topic("payments", key=utf8, value=registry.avro({"type": "record", "name": "Payment", "fields": [
            {"name": "cents", "type": "long"}]}))  # fmt: skip
        payments.value.encode({"cents": 1})
    served.subjects["totals-value"], served.strict = [1], {"totals-value"}
    assert "refuses the schema of this code as incompatible" in grete("run", job, code=2)
    served.strict = set()
    (tmp_path / "payments.tsv").write_bytes(b"ann\t\0\0\0\0\x01\x04\nann\t\0\0\0\0\x01\x06\nbob\t{}\n")
    assert "is not a record of topic 'payments'" in grete(
        "run", job, "--input", f"payments={tmp_path}/payments.tsv", "--keys", code=2
    )
    (tmp_path / "payments.tsv").write_bytes(b"ann\t\0\0\0\0\x01\x04\nann\t\0\0\0\0\x01\x06\n")
    grete("run", job, "--input", f"payments={tmp_path}/payments.tsv", "--keys")
    assert grete("state", "get", job, "cents", "ann") == "5\n"
    assert grete("topic", "read", job, "totals") == '0\t0\tann\t{"cents": 2}\n0\t1\tann\t{"cents": 5}\n'
