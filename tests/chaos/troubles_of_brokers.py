"""Scenarios of Kafka brokers: killed, frozen, led by another, refusing. Each starts brokers of its own."""

from collections.abc import Callable
from pathlib import Path

SCENARIOS: dict[str, Callable[[Path, int], str]] = {}
