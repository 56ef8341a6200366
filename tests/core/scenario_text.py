"""The form of a scenario as text: blocks of comments, commands, ``----`` and the lines that follow."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Block:
    """Some commands and what followed from them when the file was written; ``head``: the comments before them."""

    head: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Return the block as it is written in a file."""
        return "\n".join([*self.head, *self.commands, "----", *self.expected, ""])


def parse(text: str) -> list[Block]:
    """Return the blocks of a file. Raises ValueError on commands without a line ``----``."""
    blocks, block, expected = list[Block](), Block(), False
    for line in [*text.splitlines(), ""]:
        if not line.strip():
            if expected:
                blocks.append(block)
                block, expected = Block(), False
            elif block.commands:
                raise ValueError(f"no line ---- after {block.commands[-1]!r}")
            elif block.head:
                block.head.append("")
        elif expected:
            block.expected.append(line)
        elif line == "----":
            expected = True
        else:
            (block.head if line.startswith("#") else block.commands).append(line)
    if any(block.head):
        raise ValueError(f"comments without a command: {block.head[0]!r}")
    return blocks
