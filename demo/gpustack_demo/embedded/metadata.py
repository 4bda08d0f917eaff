"""Nova's metadata API, asked as Neutron's metadata agent does for an instance."""

from __future__ import annotations

import hashlib
import hmac
import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """The metadata API of an embedded Nova.

    :param secret: the secret that Nova shares with Neutron's agent.
    """

    port: int
    secret: str

    def vendor_data(self, instance: str, project: str) -> dict[str, Any]:
        """The vendor data that an instance gets.

        :param instance: its uuid.
        :param project: the id of its project.
        :raises OSError: if Nova refuses, or can't read the file of the vendor data.
        """
        signature = hmac.new(self.secret.encode(), instance.encode(), hashlib.sha256).hexdigest()
        headers = {
            "X-Instance-ID": instance,
            "X-Tenant-ID": project,
            "X-Instance-ID-Signature": signature,
            "X-Forwarded-For": "192.0.2.1",
        }
        url = f"http://127.0.0.1:{self.port}/openstack/latest/vendor_data.json"
        request = urllib.request.Request(url, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310
                data: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as error:
            error.close()  # it holds the answer
            raise
        return data
