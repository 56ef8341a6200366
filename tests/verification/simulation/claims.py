"""The claims of a task, in the order of its changelog (C1, R3)."""


class Claims:
    """The claims of one task in log order, and what each took over."""

    def __init__(self) -> None:
        self.top = 0
        self.restored: dict[int, int] = {}  # generation -> last valid checkpoint before its claim
        self.nonces: dict[int, list[bytes]] = {}  # generation -> who claimed it
        self.messages: dict[tuple[int, int], int] = {}  # (generation, ChangelogSeq) -> crc: a repeat, or another writer

    def is_rolled_back(self, generation: int, checkpoint_id: int) -> bool:
        """Tell whether a later claim has taken back what ``generation`` made for ``checkpoint_id`` (R3)."""
        return any(g > generation and restored < checkpoint_id for g, restored in self.restored.items())
