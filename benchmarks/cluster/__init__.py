"""Measures the pauses of a job when members join, leave and die: see ``__main__``."""
