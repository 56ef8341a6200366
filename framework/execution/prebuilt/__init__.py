"""State that a start takes as files: of a snapshot, of a bulk write."""
