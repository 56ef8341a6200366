"""A job's state moved by Spark: `grete rescale … --spark`, `grete fork … --spark`."""
