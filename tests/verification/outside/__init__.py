"""Mistakes outside of the core, each written down with the guarantee that it breaks and the test that kills it.

A file for each room: supervision, logs, sinks, Spark, and so on. ``python -m tests.verification.outside`` makes the
mistakes one by one, in a copy of the repository, and runs the test that must notice it.
"""
