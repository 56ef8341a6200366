"""Serdes whose schemas are kept by a schema registry."""
