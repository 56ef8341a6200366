"""Bytes and values: every message that Grete writes, and nothing that does I/O (see README.md)."""
