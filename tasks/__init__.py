"""Runnable examples, smallest first; each file is a whole job. They use the public API of `grete` only."""
