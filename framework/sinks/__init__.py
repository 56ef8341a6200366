"""Sinks other than a log: outputs are applied after the commit, once (S2)."""
