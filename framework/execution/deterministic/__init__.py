"""The runtime of the deterministic mode (D1-D5): logical time on every record, outputs that leave at once."""
