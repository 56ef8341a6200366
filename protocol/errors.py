"""The errors of decoders. Bad bytes raise nothing else."""


class DecodeError(ValueError):
    """Bytes that are not a message of this format; the text says which field, its value and what was expected."""


class UnsupportedFormat(DecodeError):
    """A format version or message type that this build does not know: upgrade before reading."""
