"""The advice of an error about a changelog message that cannot be read or cannot be there."""

from protocol.errors import DecodeError, UnsupportedFormat

DAMAGED = "the changelog is damaged: restore the topic, or start the job under another name"


def unreadable(error: DecodeError) -> str:
    """Return the text for a message that cannot be decoded."""
    return f"{error}; {'or ' if isinstance(error, UnsupportedFormat) else ''}{DAMAGED}"
