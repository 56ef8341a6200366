"""Committed state from outside of the workers: read, write in bulk, move."""
