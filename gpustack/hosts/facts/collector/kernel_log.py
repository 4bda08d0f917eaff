"""Messages of the kernel that can be signs of failing devices, by the words of the table of signs."""

import collections
import os
import re
import stat
from typing import Deque, Dict, Iterator, List, Optional, Set, Tuple

from .limits import CONTROL, TABLE_LIMIT
from .reader import HostRoot
from .words import WORDS

KMSG = "/dev/kmsg"
RECORD_LIMIT = 8192
MESSAGE_LIMIT = 512
MOST_OF_A_KIND = 64
MOST = 4096
TOKEN = re.compile(r"[A-Za-z_]{3,}")
"""A word of a message."""
_ADDRESS = re.compile(r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[01][0-9a-fA-F](?:\.[0-7])?\b")
# A record of /dev/kmsg (Documentation/ABI/testing/dev-kmsg): priority, number, time, flags; message with escapes \xNN.
RECORD = re.compile(r"[0-9]+,([0-9]+),([0-9]+),[^;]*;(.*)")
_NUMBER = re.compile(r"\)?: ([0-9]{1,5}),")
"""The number of NVIDIA's errors, which follows the device: ``Xid (PCI:0000:65:00): 79, pid=1``."""
Kind = Tuple[str, str, Optional[str], Optional[str]]


def kernel_log(host: HostRoot) -> Tuple[Optional[List[str]], Optional[int], Optional[int]]:
    """The newest messages with the words of a sign since boot, each with its time, and how many were left out.

    The kernel overwrites the oldest messages, often after some days.

    Of each sign and device the newest 64 stay, so that one faulty device displaces no other, and the errors of a
    program, which come by the hundred, no error of the GPU.

    :returns: the messages, oldest first, the number left out, and the time of the oldest message of any kind in seconds
        since boot, 0 if none was overwritten; ``None`` if the log can't be read.
    """
    words = _words()
    kept: Dict[Kind, Deque[Tuple[int, str]]] = collections.defaultdict(lambda: collections.deque(maxlen=MOST_OF_A_KIND))
    matched, since = 0, None  # type: int, Optional[int]
    try:
        for number, record in enumerate(records(host)):
            match = RECORD.match(record)
            kind = _kind(match.group(3), words) if match else None
            if match and since is None:
                since = int(match.group(2)) // 1000000 if int(match.group(1)) else 0
            if match and kind is not None:
                matched += 1
                seconds, rest = divmod(int(match.group(2)), 1000000)
                text = "[{:5}.{:06}] {}".format(seconds, rest, CONTROL.sub("?", match.group(3)))
                if len(kept) < MOST or kind in kept:
                    kept[kind].append((number, text[:MESSAGE_LIMIT]))
    except OSError:
        return None, None, None  # it takes root, and another root has none
    messages = sorted(entry for of_kind in kept.values() for entry in of_kind)[-MOST:]
    return [text for _time, text in messages], matched - len(messages), since


def _words() -> Dict[str, List[str]]:
    """The second words of the signs, by the first; empty if the first one alone is enough."""
    return {words[0]: words[1:] or [""] for words in map(str.split, WORDS.split(","))}


def _kind(text: str, words: Dict[str, List[str]]) -> Optional[Kind]:
    """The words of a sign, the device and the error's number; ``None`` if the message has no sign's words."""
    tokens: Set[str] = set(TOKEN.findall(text))
    for first in sorted(tokens.intersection(words)):
        for second in words[first]:
            if second in text:
                address = _ADDRESS.search(text)
                number = _NUMBER.match(text, address.end()) if address else None
                return first, second, address.group() if address else None, number.group(1) if number else None
    return None


def records(host: HostRoot) -> Iterator[str]:
    """The records of the device, one for each read; of a file in another root, its lines."""
    if not host.running:
        status = host.status(KMSG)
        if status is None or not stat.S_ISREG(status.st_mode):
            raise OSError
        yield from (host.text(KMSG) or "").splitlines()
        return
    descriptor = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        size = 0
        while size < TABLE_LIMIT:
            try:
                record = os.read(descriptor, RECORD_LIMIT)
            except BrokenPipeError:  # overwritten meanwhile; the next read goes on
                continue
            except BlockingIOError:
                return
            if not record:
                return
            size += len(record)
            yield record.decode("utf-8", "replace")
        host.note(KMSG, "larger than {} bytes; the rest was not read".format(TABLE_LIMIT))
    finally:
        os.close(descriptor)
