"""A job: the graph of its stages, and the definition that its state has."""
