"""Sinks to systems that Grete does not know, each in one file."""
