"""Runs its first argument as ``python -c`` does: a test forks such a text with what it imports (``forking.TEXT``)."""

import sys

text = sys.argv.pop(1)
sys.argv[0] = "-c"
exec(compile(text, "<string>", "exec"), {"__name__": "__main__"})  # a test's own text
