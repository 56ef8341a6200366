"""State as Parquet files: all of it once, then its changes; a manifest says which checkpoint they hold."""
