"""Limits of time spans in declarations: a time plus a span must stay an INT64, as in timers."""

from grete.errors import ConfigError

SPAN_MS_MAX = 1 << 60  # 36 million years: a sum of a record's time and four of them is below 2**63


def check_spans(what: str, **spans: int) -> None:
    """Raise ConfigError for a span, argument → ms, that is no int or is longer than "for ever" need be.

    2**63 - 1, Java's Long.MAX_VALUE, would fail at each record: it leaves no room for the record's time.
    """
    for name, span_ms in spans.items():
        if type(span_ms) is not int or abs(span_ms) > SPAN_MS_MAX:
            raise ConfigError(
                f"{what}: {name} = {span_ms!r}: need an int of at most {SPAN_MS_MAX} ms (2**60, for ever), so that the "
                "time of a record can be added to it"
            )
