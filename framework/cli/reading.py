"""Shared by the reading commands: JSON, an object a line."""

import json
from collections.abc import Mapping
from typing import Any

from grete.state.shown import printable_json


def print_json(row: Mapping[str, Any]) -> None:
    """Print an object on a line of its own."""
    print(printable_json(json.dumps(row, ensure_ascii=False)))
