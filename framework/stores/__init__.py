"""State stores: what is committed (RocksDB, memory), the layers above it, and the spill of early frames."""
