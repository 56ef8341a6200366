"""The latency experiment: an incremental inverted index on real articles, seen from outside."""
