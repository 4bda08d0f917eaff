"""VFIO variant drivers: what the aliases of the kernels say is best for a function."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.hosts.facts.boot_model import BootKernel, VfioAlias
from gpustack.hosts.facts.collector import collect
from gpustack.hosts.facts.model import Function
from gpustack.hosts.facts.variants import best
from support.host_samples import function as sample
from support.sysroot import talk_host

# As the kernel's build writes them (Linux commit cc6711b0bf36 shows the first two and the last).
MODULES_ALIAS = """\
# Aliases extracted from modules themselves.
alias pci:v000015B3d00001021sv*sd*bc*sc*i* mlx5_core
alias vfio_pci:v000015B3d0000101Esv*sd*bc*sc*i* mlx5_vfio_pci
alias vfio_pci:v000010DEd00002342sv*sd*bc*sc*i* nvgrace_gpu_vfio_pci
alias vfio_pci:v000010DEd00002345sv*sd*bc*sc*i* nvgrace_gpu_vfio_pci
alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci
"""
GRACE = "pci:v000010DEd00002342sv000010DEsd000016EBbc03sc02i00"


def gpu(modalias: str | None) -> Function:
    return Function.model_validate({**sample("0000:01:00.0"), "modalias": modalias})


def kernel(*aliases: tuple[str, str], lacking: tuple[str, ...] = ()) -> BootKernel:
    return BootKernel(
        release="6.12.0",
        modules={module: "module" for _, module in aliases if module not in lacking},
        vfio_aliases=tuple(VfioAlias(pattern=pattern, module=module) for pattern, module in aliases),
    )


EXACT = ("vfio_pci:v000010DEd00002342sv*sd*bc*sc*i*", "nvgrace_gpu_vfio_pci")
NARROWER = ("vfio_pci:v000010DEd00002342sv000010DEsd*bc*sc*i*", "board_vfio_pci")
VENDOR = ("vfio_pci:v000010DEd*sv*sd*bc*sc*i*", "any_nvidia_vfio_pci")


@pytest.mark.parametrize(
    ("kernel", "modalias", "variant"),
    [
        (kernel(EXACT), GRACE, "nvgrace_gpu_vfio_pci"),
        (kernel(VENDOR, EXACT), GRACE, "nvgrace_gpu_vfio_pci"),
        (kernel(VENDOR, EXACT, NARROWER), GRACE, "board_vfio_pci"),
        (kernel(VENDOR, EXACT), GRACE.replace("2342", "2330"), "any_nvidia_vfio_pci"),
        (kernel(EXACT), GRACE.replace("2342", "2330"), "vfio_pci"),
        (kernel(EXACT, lacking=("nvgrace_gpu_vfio_pci",)), GRACE, "vfio_pci"),
        (kernel(), GRACE, "vfio_pci"),
        (kernel(EXACT), None, "vfio_pci"),
        (kernel(EXACT), "usb:v1D6Bp0002", "vfio_pci"),
    ],
)
def test_the_alias_with_the_fewest_wildcards_is_the_best(
    kernel: BootKernel, modalias: str | None, variant: str
) -> None:
    assert best(kernel, gpu(modalias)) == variant


def test_the_collector_reports_the_variants_of_every_kernel(tmp_path: Path) -> None:
    root = talk_host(tmp_path).kernel("6.12.9-amd64", modules=("vfio/pci/mlx5/mlx5-vfio-pci",))
    root.write("/lib/modules/6.12.9-amd64/modules.alias", MODULES_ALIAS)
    aliases = {kernel["release"]: kernel["vfio_aliases"] for kernel in collect(str(root.path))["boot"]["kernels"]}
    assert aliases["6.12.9-amd64"] == [
        {"pattern": "vfio_pci:v000010DEd00002342sv*sd*bc*sc*i*", "module": "nvgrace_gpu_vfio_pci"},
        {"pattern": "vfio_pci:v000010DEd00002345sv*sd*bc*sc*i*", "module": "nvgrace_gpu_vfio_pci"},
        {"pattern": "vfio_pci:v000015B3d0000101Esv*sd*bc*sc*i*", "module": "mlx5_vfio_pci"},
    ]
    assert [entry for release, entry in aliases.items() if release != "6.12.9-amd64"] == [[]]


def test_the_drivers_of_a_gpus_usb_and_ucsi_functions_matter_too(tmp_path: Path) -> None:
    root = talk_host(tmp_path)
    root.function("0000:84:00.2", vendor="10de", product="1ad8", cls="0c0330", driver="xhci_hcd")
    root.function("0000:84:00.3", vendor="10de", product="1ad9", cls="0c8000", driver="nvidia-gpu")
    root.kernel("6.1.0-9-amd64", modules=("usb/host/xhci-pci", "i2c/busses/i2c-nvidia-gpu"))
    running = "/lib/modules/6.1.0-37-amd64/modules.alias"
    aliases = (
        "alias pci:v*d*sv*sd*bc0Csc03i30* xhci_pci\nalias pci:v000010DEd00001AD9sv*sd*bc0Csc80i00* i2c_nvidia_gpu\n"
    )
    root.write(running, aliases)
    modules = collect(str(root.path))["boot"]["kernels"][0]["modules"]
    assert modules == {"xhci_pci": "module", "i2c_nvidia_gpu": "module"}
