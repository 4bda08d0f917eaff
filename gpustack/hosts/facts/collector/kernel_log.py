"""Messages of the kernel that show a failing device: resets, power states, IOMMU faults."""

import collections
import os
import re
import stat
from typing import Deque, Dict, Iterator, List, Optional

from .limits import CONTROL, TABLE_LIMIT
from .reader import HostRoot

KMSG = "/dev/kmsg"
RECORD_LIMIT = 8192
MESSAGE_LIMIT = 512
MOST_OF_A_KIND = 64
KINDS = tuple(
    re.compile(pattern)
    for pattern in (
        r"not ready [0-9]+ms after",
        r"change power state",
        r"DMAR: .*(?:Request device|Fault|fault addr)",
        r"IO_PAGE_FAULT|AMD-Vi: Event logged",
        r"arm-smmu.*(?:fault|event)",
    )
)
# A record of /dev/kmsg (Documentation/ABI/testing/dev-kmsg): priority, number, time, flags; message.
_RECORD = re.compile(r"[0-9]+,[0-9]+,[0-9]+,[^;]*;(.*)")


def kernel_log(host: HostRoot) -> Optional[List[str]]:
    """The newest matching messages since boot, oldest first within a kind; ``None`` if the log can't be read."""
    try:
        all_records = list(records(host))
    except OSError:
        return None  # it takes root, and another root has none
    messages: Dict[int, Deque[str]] = collections.defaultdict(lambda: collections.deque(maxlen=MOST_OF_A_KIND))
    for record in all_records:
        match = _RECORD.match(record)
        kind = next((number for number, sign in enumerate(KINDS) if match and sign.search(match.group(1))), None)
        if match and kind is not None:
            messages[kind].append(CONTROL.sub("?", match.group(1))[:MESSAGE_LIMIT])
    return [message for kind in sorted(messages) for message in messages[kind]]


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
    finally:
        os.close(descriptor)
