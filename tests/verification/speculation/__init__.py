"""Speculative tasks under kills, zombies and lost sends, against a run in order."""
