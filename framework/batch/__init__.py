"""A job's own task classes over a recorded past, in batch: the state that live tasks would have, ready for them."""
