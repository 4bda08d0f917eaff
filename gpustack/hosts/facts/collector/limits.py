"""Maximum sizes of files, and patterns of valid names."""

import re
from typing import Callable

Reader = Callable[[int, int], bytes]

VALUE_LIMIT = 4096  # a sysfs attribute is one page at most (kernel: Documentation/filesystems/sysfs.rst)
TEXT_LIMIT = 256 * 1024  # a configuration file
TABLE_LIMIT = 32 * 1024 * 1024  # modules.alias, modules.dep, /proc/interrupts, grub.cfg
LINE_LIMIT = 16384
LINK_LIMIT = 40  # as the kernel's MAXSYMLINKS

ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
CONTROL_BUT_TAB = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
MODULE_NAME = re.compile(r"[A-Za-z0-9_.+-]{1,64}")
RELEASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,127}")
HOST_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,253}")
