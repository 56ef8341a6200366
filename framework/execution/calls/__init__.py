"""Calls out of ``async def process``: records in flight, each with effects of its own until its turn (0056)."""
