"""Committed state as others than the task see it: read, write in bulk, move."""
