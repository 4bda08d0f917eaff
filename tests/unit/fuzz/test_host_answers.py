"""Answers of hostile hosts, driven through everything on the controller that reads them."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpustack.configure import plugin_api as nova
from gpustack.connect.ssh import program as ssh_program
from gpustack.hosts.facts import store
from gpustack.hosts.topology import diagram
from gpustack.hosts.topology.build import topology
from gpustack.hosts.topology.check import check
from gpustack.hosts.topology.diagram import document
from gpustack.hosts.topology.show import ASCII, text
from gpustack.linux import grub
from gpustack.linux.cmdline import CommandLine
from gpustack.linux.modprobe import read_modprobe
from gpustack.prepare import plugin_api as controller
from gpustack.repair.hypervisor import usage
from support.attack import BYTES, JSON, TEXTS, attack, damaged, examples
from support.fuzz_inputs import CONF, RAW, SPEC, THERE


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("spec") / "gpustack.yaml"
    path.write_text(SPEC)
    return str(path)


def every_reader(spec: str, facts: dict[str, Any]) -> None:
    with attack():
        controller.plan(spec, facts, "gpu01", adopt=True, live=True)
    with attack():
        controller.plan(spec, facts, "gpu01", trial=300)
    with attack():
        controller.undo(facts, "gpu01", force=True)
    with attack():
        controller.verify(spec, facts, None, "gpu01")
    with attack():
        controller.verify_next(spec, facts, "gpu01")
    with attack():
        controller.verify_undone(facts, {}, "gpu01")
    with attack():
        nova.overall(spec, {"gpu01": facts})
    with attack():
        drawn(facts)


def drawn(facts: dict[str, Any]) -> list[str]:
    """Everything that is drawn of a host's topology."""
    built = topology(store.parse_host(facts, "gpu01")).owned({"0000:84:00.0": "vm1"})
    texts = [json.dumps(document(built, check(built))), diagram.mermaid([built]), diagram.dot([built])]
    return [*texts, text(built), text(built.pruned(), ASCII)]


def test_nothing_undamaged_is_refused(spec: str) -> None:
    """Else the attacks below would not get far."""
    assert not controller.plan(spec, RAW["k4200"], "gpu01").get("failed")
    assert controller.verify(spec, RAW["k4200-prepared"], IMAGES, "gpu01")["text"]
    assert not nova.for_host(spec, DECIDED, "gpu01", services=["compute"], facts=RAW["k4200"], module_answer=THERE).get(
        "failed"
    )
    assert all(drawn(RAW["k4200"]))
    assert usage({"used": {"0000:81:00.0": ["u"]}, "unread": []}).users


@examples(150)
@given(BYTES)
def test_what_a_host_prints(output: bytes) -> None:
    with attack():
        ssh_program._document(output, "gpu01")
    with attack():
        store.SnapshotReader(keep=False).add(io.BytesIO(output), "gpu01.json")


@examples(100)
@given(damaged(RAW["k4200"]))
def test_damaged_facts(spec: str, facts: dict[str, Any]) -> None:
    every_reader(spec, facts)


SHELL = st.lists(
    st.one_of(
        TEXTS,
        st.sampled_from(
            [
                "GRUB_CMDLINE_LINUX=",
                "GRUB_CMDLINE_LINUX+=",
                "GRUB_CMDLINE_LINUX_DEFAULT=",
                '"',
                "'",
                "$GRUB_CMDLINE_LINUX",
                "${GRUB_CMDLINE_LINUX:+",
                "}",
                "intel_iommu=on",
                "vfio-pci.ids=10de:11b4",
                "\n",
                ";",
                "if true; then",
                "fi",
                "options vfio-pci ids=",
                "blacklist nouveau",
                "softdep a pre: b",
                "install x /bin/true",
                "\\\n",
                "# ",
                'add_drivers+=" vfio ',
                "vfio_pci",
                "MODULES=",
                "echo 0000:88:00.0 >/sys/bus/pci/drivers/vfio-pci/bind",
                '{"/etc/default/grub": {"before": "x", "after": null, "mode": "0644"}}',
                "ExecStart=",
                "driver_override",
            ]
        ),
    ),
    max_size=25,
).map(" ".join)
PATHS = st.sampled_from(
    [
        "/etc/default/grub",
        "/etc/default/grub.d/50-x.cfg",
        "/etc/modprobe.d/vfio.conf",
        "/etc/modules",
        "/etc/rc.local",
        "/etc/modules-load.d/x.conf",
        "/etc/initramfs-tools/modules",
        "/etc/initramfs-tools/initramfs.conf",
        "/etc/dracut.conf.d/x.conf",
        "/etc/kernel/cmdline",
        "/etc/kernel/install.conf",
        "/etc/driverctl.d/0000:88:00.0",
        "/etc/udev/rules.d/10-vfio.rules",
        "/etc/systemd/system/vfio.service",
        "/var/lib/gpustack/journal.json",
        "/var/lib/gpustack/adopted",
        "/var/lib/gpustack/adopted.json",
        "/etc/mkinitcpio.conf",
        "/run/gpustack/trial",
        "/etc/mdevctl.d/0000:88:00.0/x",
        "/etc/modprobe.d/gpustack.conf",
        "/etc/initramfs-tools/hooks/gpustack",
    ]
)


@examples(150)
@given(st.dictionaries(PATHS, SHELL, max_size=4), SHELL, st.sampled_from(sorted(RAW)))
def test_hostile_configuration_files(spec: str, texts: dict[str, str], line: str, name: str) -> None:
    facts = json.loads(json.dumps(RAW[name]))
    facts["files"] = {**facts.get("files", {}), **{path: {"text": text} for path, text in texts.items()}}
    facts["kernel"]["command_line"] = "".join(c for c in line if c >= " ")[:16000]
    every_reader(spec, facts)


@examples(150)
@given(SHELL)
def test_grubs_and_modprobes_configuration(text: str) -> None:
    with attack():
        defaults = grub.read_defaults({grub.DEFAULTS: text}, bash=True)
        defaults.arguments(grub.LINUX, grub.LINUX_DEFAULT)
        CommandLine(text=text).arguments  # noqa: B018
        read_modprobe({"/etc/modprobe.d/x.conf": text})


IMAGES = {
    release: {
        "modules": ["vfio_pci"],
        "files": {"/etc/modprobe.d/x.conf": {"text": "options vfio-pci ids=10de:11b4\n"}},
    }
    for release in ("6.1.0-37-amd64", "6.1.0-35-amd64")
}


@examples(100)
@given(st.one_of(JSON, damaged(IMAGES)))
def test_the_content_of_images(spec: str, images: Any) -> None:
    with attack():
        controller.verify(spec, RAW["k4200-prepared"], images, "gpu01")
    with attack():
        controller.verify_undone(RAW["k4200-prepared"], images, "gpu01")


@examples(150)
@given(st.one_of(JSON, damaged({"used": {"0000:81:00.0": ["u"]}, "unread": [["/run/x", "why"]]})))
def test_the_devices_of_guests(answer: Any) -> None:
    with attack():
        host_usage = usage(answer)
        for users in (host_usage.users or {}).values():
            assert all(isinstance(user, str) for user in users)


DECIDED: dict[str, Any] = {"aliases": [], "computes": {"gpu01": []}}


@examples(150)
@given(st.one_of(JSON, damaged(THERE)), CONF)
def test_the_configuration_of_nova(spec: str, document: Any, text: str) -> None:
    for answer in (document, {**THERE, "files": [{"path": "/etc/nova/nova.conf", "text": text}]}):
        with attack():
            nova.for_host(spec, DECIDED, "gpu01", services=["compute"], facts=RAW["k4200"], module_answer=answer)
