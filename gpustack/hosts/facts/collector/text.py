"""Lines of a console: escape sequences, carriage returns and foreign bytes are removed."""

import re
from typing import List, Union

TEXT_LIMIT = 4 * 1024 * 1024
LINE_LIMIT = 16384

# ECMA-48: CSI sequences, strings (OSC, DCS, PM, APC, SOS) up to their end, and two-character escapes. A terminated
# console log can end inside a sequence. A string that never ends takes no more than its line.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*(?:[@-~]|$)"
    r"|\x1b[\]PX^_][^\x07\x1b\n\r]*(?:\x07|\x1b\\)?"
    r"|\x1b[ -/]*[0-~]?",
    re.MULTILINE,
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def lines(log: Union[bytes, str]) -> List[str]:
    """The lines of a log, without escape sequences and control characters; of a very long log, the end."""
    text = log[-TEXT_LIMIT:].decode("utf-8", "replace") if isinstance(log, bytes) else log[-TEXT_LIMIT:]
    plain = _CONTROL.sub("", _ESCAPES.sub("", text).replace("\t", " "))
    return [line[:LINE_LIMIT] for line in re.split(r"[\r\n]+", plain) if line]
