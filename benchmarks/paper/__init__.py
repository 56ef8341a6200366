"""Section VI of the formal-model paper in full: an inverted index as state, under each guarantee and technique."""
