"""Valid inputs that the fuzz tests damage."""

from __future__ import annotations

import json

from hypothesis import strategies as st

from support.attack import TEXTS
from support.host_samples import SNAPSHOTS

RAW = {name: json.loads((SNAPSHOTS / f"{name}.json").read_text())["hosts"][0] for name in ("k4200", "k4200-prepared")}
SPEC = """\
version: 1
models:
  k4200: {match: {vendor: "10de", product: "11b4"}}
hosts: {gpu01: [k4200]}
nova: {release: "2025.2"}
"""
THERE = {
    "files": [
        {"path": "/etc/nova/nova.conf", "text": '[pci]\nalias = {"name": "a"}\ndevice_spec = {"address": "*"}\n'}
    ],
    "units": ["nova-compute.service"],
    "engine": "",
    "started": {"compute": ["--config-dir=/etc/nova/nova.conf.d"]},
    "pending": ["compute"],
}
CONF = st.lists(
    st.one_of(
        TEXTS,
        st.sampled_from(
            [
                "\n[pci]\n",
                "\n[DEFAULT]\n",
                "alias = ",
                "device_spec = ",
                '{"vendor_id": "10de"}',
                "\n a = $a$a",
                "\n  ",
                "$$",
            ]
        ),
    ),
    max_size=20,
).map("".join)
