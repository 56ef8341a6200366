"""Shared by the reading commands: JSON, an object a line."""

import json
from collections.abc import Mapping
from typing import Any


def print_json(row: Mapping[str, Any]) -> None:
    """Print an object on a line of its own."""
    print(json.dumps(row, ensure_ascii=False))
