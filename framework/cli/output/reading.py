"""Shared by the reading commands: JSON, an object a line."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from grete.state.read.shown import printable_json


def print_json(row: Mapping[str, Any] | msgspec.Struct) -> None:
    """Print an object on a line of its own."""
    plain = msgspec.to_builtins(row) if isinstance(row, msgspec.Struct) else row
    print(printable_json(json.dumps(plain, ensure_ascii=False)))
