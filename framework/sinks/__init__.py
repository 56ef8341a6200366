"""Where outputs go that are not a log: applied after the commit, once (S2)."""
