"""The store on disk, by RocksDB."""
