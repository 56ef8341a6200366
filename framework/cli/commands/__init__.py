"""The commands of `grete`, one module each."""
