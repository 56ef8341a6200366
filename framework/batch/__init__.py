"""A job's own task classes over its history, in batch: the state that live tasks would have, ready for them."""
