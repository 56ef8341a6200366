"""A task's changelog: writing, restoring, standbys, trimming."""
