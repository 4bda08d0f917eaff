"""The check of a guest as one Python program: ``python -P -m gpustack.offer.guest.bundle > guest-check.py``."""

import base64
import json
import zlib
from collections.abc import Mapping

from gpustack.hosts.facts.bundle import bundled
from gpustack.offer.guest.check import Promise, data

_ENTRY = "gpustack.offer.guest.inside.program"
_TITLE = "Check the GPUs of this guest."


def program(flavors: Mapping[str, Promise] | None = None, *options: str) -> str:
    """The program's text.

    :param flavors: what the flavors promise, by their names in the cloud.
    :param options: options before those of the command line.
    """
    packed = base64.b64encode(zlib.compress(json.dumps(data(flavors)).encode(), 9)).decode()
    unpacked = f"__import__('zlib').decompress(__import__('base64').b64decode({packed!a})).decode()"
    return bundled(_ENTRY, _TITLE, f"{list(options)!a} + sys.argv[1:], __import__('json').loads({unpacked})")


if __name__ == "__main__":
    print(program(), end="")
