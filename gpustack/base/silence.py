"""The time that silent sources may cost a run together: APIs and databases; a host that is asked has its share."""

TOTAL = 60.0
"""Seconds to wait for all silent sources of a run together: after the first one, others get less."""
LEAST, LAST = 5.0, 1.0
"""Seconds for a further source, of which two are kept for the last ones; and for each one after the total."""
_waited = 0.0


def left(usual: float) -> float:
    """The seconds for the next source.

    :param usual: those if no source was silent.
    """
    if not _waited:
        return usual
    return max(min(usual, TOTAL - 2 * LEAST - _waited), min(usual, LEAST, TOTAL - _waited), min(usual, LAST))


def waited(seconds: float) -> None:
    """Count the seconds that a silent source took, or those that one may take."""
    global _waited
    _waited += seconds


def forget() -> None:
    """Begin another run."""
    waited(-_waited)
