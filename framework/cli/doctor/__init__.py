"""The checks of `grete doctor`. None of them writes to a log or to a disk."""
