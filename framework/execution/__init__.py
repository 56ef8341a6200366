"""Runs tasks: driver, processor, worker, supervisor."""
