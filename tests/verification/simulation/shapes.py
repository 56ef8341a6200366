"""The shapes of the jobs in simulated worlds."""

# name, edges (producer, consumer) by stage ordinal, how often
SHAPES: tuple[tuple[str, int, tuple[tuple[int, int], ...], int], ...] = (
    ("alone", 1, (), 6),
    ("wide", 2, ((0, 1),), 24),
    ("chain", 3, ((0, 1), (1, 2)), 18),
    ("fan-in", 3, ((0, 2), (1, 2)), 16),
    ("short diamond", 3, ((0, 1), (0, 2), (1, 2)), 16),
    ("diamond", 4, ((0, 1), (0, 2), (1, 3), (2, 3)), 10),
    ("long chain", 4, ((0, 1), (1, 2), (2, 3)), 5),
    ("two arms", 4, ((0, 2), (1, 2), (2, 3)), 5),
)
