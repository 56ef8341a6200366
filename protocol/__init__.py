"""Bytes and values: every message that Grete writes, and nothing that does I/O (see README.md)."""

if __name__ != "grete.protocol":  # else there would be two of each class
    raise ImportError(f"import grete.protocol, not {__name__}: that is the folder in which its source is")
