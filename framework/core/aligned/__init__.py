"""The core of an aligned task: alignment, early records, rollback."""
