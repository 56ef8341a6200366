"""A job on this machine and in its log: directory, code, topics, metadata."""
