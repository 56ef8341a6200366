"""Benchmarks, and the way to repeat them: ``make bench``."""
