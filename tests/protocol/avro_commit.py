"""Commits as releases up to 0.4.0 have written them: schema version 1, a record of Avro."""

from io import BytesIO
from typing import Any

from fastavro import schemaless_writer

from grete.protocol import commit as current
from grete.protocol.changelog import ChangelogHeader, encode_changelog_header
from grete.protocol.commit import SCHEMA_NAMES, Commit
from grete.protocol.ids import RollbackEntry


def encode_avro(header: ChangelogHeader, commit: Commit) -> bytes:
    """Return a whole commit message."""
    record = _fields(commit)
    record["lineage"] = _history(commit.rollback_history)
    record["outputs"] = list(map(_fields, commit.outputs))
    record["inputs"] = [{**_fields(read), "channels": list(map(_fields, read.channels))} for read in commit.inputs]
    record["known"] = [{"producer": of.producer, "lineage": _history(of.rollback_history)} for of in commit.known]
    record["external"] = list(map(_fields, commit.external))
    record["rounds"] = list(map(_fields, commit.rounds))
    if commit.deterministic is not None:
        fronts = list(map(_fields, commit.deterministic.frontiers))
        record["deterministic"] = {**_fields(commit.deterministic), "fronts": fronts}
    out = BytesIO()
    schemaless_writer(out, current._SCHEMA, record)
    return encode_changelog_header(header) + b"\0\1" + out.getvalue()


def _fields(value: Any) -> dict[str, Any]:
    return {SCHEMA_NAMES.get(name, name): getattr(value, name) for name in value.__struct_fields__}


def _history(history: tuple[RollbackEntry, ...]) -> list[dict[str, int]]:
    return [{"generation": entry.generation, "restored": entry.checkpoint_id} for entry in history]
