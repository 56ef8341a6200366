"""State stores: what is committed (RocksDB, memory), the write batches above it, and the spill of early frames."""
