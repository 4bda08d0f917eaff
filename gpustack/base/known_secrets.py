"""The secrets that this process has read. Its logs and errors contain none of them, whatever library wrote the text."""

import contextlib
import json
import logging
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

MASK = "***"
SHORT = 4
_LONG = 8
_KEY = re.compile(r"(?:pass|passw(?:or)?d|passcode|passphrase|secret|token)$", re.IGNORECASE)
_OF_TENANTS = re.compile(r"""(['"](?:[\w-]{1,64}:)?(?:user_data|adminPass)['"]:\s?['"])[^'"]+""")
"""In answers of Nova, which debug logs of keystoneauth contain: an administrator gets these of each instance."""
_SECRETS: set[str] = set()
_PLAIN = logging.getLogRecordFactory()


def learn(data: Any) -> None:  # noqa: ANN401 - plain data
    """Learn the secrets of plain data: all values of keys such as ``password``, and the logins of addresses.

    A secret that equals another value, such as the user's name, is kept: a mask in its place would reveal it.
    """
    leaves = list(_leaves(data, is_secret=False))
    visible = {text for text, is_secret in leaves if not is_secret}
    found = {text for text, is_secret in leaves if is_secret}.union(*map(_of_login, visible))
    _SECRETS.update({form for text in found for form in forms(text)} - visible)
    logging.setLogRecordFactory(_record)


def forms(text: str) -> frozenset[str]:
    """A secret as texts may have it: in an address, in JSON and in Python."""
    plain = text.strip()
    of_text = {text, plain, unquote(text), quote(text, safe=""), json.dumps(plain)[1:-1], repr(plain)[1:-1]}
    return frozenset(of_text - {""})


def forget() -> None:
    """Forget all of them, at the end of a run."""
    _SECRETS.clear()
    logging.setLogRecordFactory(_PLAIN)


def hidden(text: str) -> str:
    """The text with ``***`` instead of secrets of tenants, and known secrets that are separate words, or long."""
    text = _OF_TENANTS.sub(rf"\1{MASK}", text)
    return any_of(_SECRETS).sub(MASK, text) if _SECRETS else text


def _record(*words: Any, **named: Any) -> logging.LogRecord:  # noqa: ANN401 - as logging has it
    """A record of any logger, for whatever handler: ``ansible-playbook`` and ``openstack`` have their own."""
    made = _PLAIN(*words, **named)
    with contextlib.suppress(TypeError, ValueError):  # logging itself reports a wrong format
        if (text := hidden(message := made.getMessage())) != message:
            made.msg, made.args = text, None
    return made


def _leaves(data: Any, *, is_secret: bool) -> Iterator[tuple[str, bool]]:  # noqa: ANN401 - plain data
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _leaves(value, is_secret=is_secret or _KEY.search(str(key)) is not None)
            yield from [(str(key), True)] * is_secret
    elif isinstance(data, list | tuple):
        for value in data:
            yield from _leaves(value, is_secret=is_secret)
    elif data is not None and not isinstance(data, bool):
        yield str(data), is_secret


def _of_login(url: str) -> Iterator[str]:
    """The password of a URL, with the user and alone, and its parts as programs split it that end the user early."""
    login = re.search("//(.*)@", url)
    if login and (password := login[1].partition(":")[2]):
        yield from (login[1], password, *re.split("[/?#@]", login[1]), *re.split("[/?#@]", password))


def any_of(words: Collection[str], short: int = SHORT) -> re.Pattern[str]:
    """A pattern of any of the words: a long one anywhere, others as separate words, those below ``short`` in quotes.

    A password such as ``a`` would make the text unreadable.
    """
    around = {True: (r"(?<!\w)", r"(?!\w)"), False: (r"(?<=['\"])", r"(?=['\"])")}
    parts = []
    for word in sorted(words, key=len, reverse=True):
        before, after = ("", "") if len(word) >= _LONG else around[len(word) >= short]
        parts.append(before + re.escape(word) + after)
    return re.compile("|".join(parts) or "(?!)")
