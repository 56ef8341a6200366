"""Shared resources of a process's RocksDB stores: one memory budget, and the options that enforce it."""

from rocksdict import BlockBasedIndexType, BlockBasedOptions, Cache, DBCompressionType, Options, WriteBufferManager

from grete.errors import ConfigError

_MiB = 1 << 20
_REPLAY_BYTES_MAX = 8 * _MiB  # not flushed, so replayed when the store is opened after a kill, at 40 ms a MiB


class RocksMemory:
    """One block cache for all stores of the process. Memtables are charged to it, so it is the whole budget."""

    def __init__(self, bytes_max: int, *, compact: bool = True) -> None:
        """Take a budget in bytes (setting rocksdb_bytes); not ``compact``: files are left as they are.

        Raises ConfigError below 8 MiB.
        """
        if bytes_max < 8 * _MiB:
            raise ConfigError(
                f"setting rocksdb_bytes = {bytes_max}: RocksDB needs at least {8 * _MiB}", setting="rocksdb_bytes"
            )
        self.bytes_max = bytes_max
        self._compact = compact
        self._cache = Cache(bytes_max)
        # At half of the budget in memtables the largest is flushed. Never stall: a stalled write would hold the GIL.
        self._buffers = WriteBufferManager.new_write_buffer_manager_with_cache(bytes_max // 2, False, self._cache)

    def used(self) -> int:
        """Return the bytes in use now, by all stores together: blocks, indexes, filters, memtables."""
        return self._cache.get_usage()

    def options(self) -> Options:
        """Return the options of a database and of each of its column families: the same ones at every start."""
        table = BlockBasedOptions()
        table.set_block_cache(self._cache)
        table.set_bloom_filter(10, block_based=False)
        table.set_cache_index_and_filter_blocks(True)  # otherwise they live outside of the budget
        # In pieces: a file of 2 million keys has a filter of 2.5 MiB, and a cache of 64 MiB takes no block above 1 MiB.
        table.set_partition_filters(True)
        table.set_index_type(BlockBasedIndexType.two_level_index_search())
        table.set_pin_l0_filter_and_index_blocks_in_cache(True)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.create_missing_column_families(True)
        options.set_block_based_table_factory(table)
        options.set_write_buffer_manager(self._buffers)
        options.set_write_buffer_size(min(_REPLAY_BYTES_MAX, self.bytes_max // 4))
        options.set_max_total_wal_size(_REPLAY_BYTES_MAX)  # of all column families together
        options.set_arena_block_size(min(_MiB, self.bytes_max // 256))  # many small stores must fit in the budget
        options.set_atomic_flush(True)  # all column families of a database reach the disk at the same point
        options.set_compression_type(DBCompressionType.lz4())
        options.set_disable_auto_compactions(not self._compact)
        options.set_max_background_jobs(2)
        options.set_max_open_files(64)  # a process hosts many databases and may have 1,024 descriptors
        options.set_table_cache_num_shard_bits(0)  # of 64 shards each keeps one file open: two files would take turns
        options.set_keep_log_file_num(2)
        options.set_max_log_file_size(_MiB)
        options.set_stats_dump_period_sec(0)
        options.set_stats_persist_period_sec(0)
        return options
