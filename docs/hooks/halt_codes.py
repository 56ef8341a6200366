"""The reference of the codes of halts, from framework/halts.py."""

from grete.halts import HaltCode


def part() -> str:
    """Return a section for each code: what happened, what is safe, what to do."""
    return "\n\n".join(
        f"## {code.value}\n\n**{code.title.capitalize()}.** {code.happened}\n\n*What is safe.* {code.safe}\n\n"
        f"*What to do.* {code.remedy}"
        for code in HaltCode
    )
