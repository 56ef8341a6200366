"""What `grete doctor` looks at. Nothing here writes: neither to a log nor to a disk."""
