"""A small exhaustive model: every interleaving of small jobs over the real core, within bounds that it states."""
