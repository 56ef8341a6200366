"""State stores: what is committed (RocksDB, memory), the layers above it that are not yet, and the spill of early frames."""
