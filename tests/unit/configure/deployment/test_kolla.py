"""Overrides for kolla-ansible beside those that are there, without `--from`."""

import pytest

from gpustack.configure.lint import lint
from gpustack.configure.lint.subject import LintSubject
from gpustack.nova_options import releases
from support.nova_rendered import FPGA, NIC, codes, rendered, written

NOVA = "etc/kolla/config/nova"
DEVICES = f"[pci]\ndevice_spec = {NIC}\n"
WAYS = ("GPU312", "GPU313", "GPU314", "GPU318", "GPU327", "GPU331")


def there(root, files):
    for name, text in files.items():
        path = root / NOVA / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def text_of(rendering, name):
    return next(f.text for f in rendering.files if f.path == f"/{NOVA}/{name}")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("gpu01/nova-compute.conf", DEVICES, "GPU314"),
        ("gpu01/nova-compute.conf", f"[pci]\nalias = {FPGA}\n", "GPU314"),
        ("gpu01/nova.conf", f"[pci]\nalias = {FPGA}\n", "GPU314"),
        ("cpu01/nova.conf", f"[pci]\nalias = {FPGA}\n", "GPU314"),
        ("ctl01/nova.conf", "[filter_scheduler]\nenabled_filters = ComputeFilter\n", "GPU314"),
        ("ctl01/nova.conf", "[filter_scheduler]\nenabled_filters = ComputeFilter,PciPassthroughFilter\n", None),
        ("gpu01/nova-compute.conf", "[pci]\nreport_in_placement = false\n", "GPU314"),
        ("gpu01/nova-compute.conf", "[libvirt]\ncpu_mode = none\n", None),
        ("ctl01/nova-api.conf", f"[pci]\nalias = {FPGA}\n", None),  # kolla-ansible does not read it
        ("../nova.conf", "[DEFAULT]\n{% if x == 1 %}\nalias = y\n", "GPU327"),
        ("nova-api.conf", "[pci]\nalias = {{ fpga | to_json }}\n", None),
        ("gpu01/nova.conf", "[pci]\nalias = {{ fpga | to_json }}\n", "GPU314"),
        ("../global.conf", "[DEFAULT]\n{% if x %}\ndebug = y\n", None),
    ],
)
def test_overrides_that_are_merged_after_ours_are_errors(tmp_path, name, text, expected):
    there(tmp_path, {name: text})
    reported = codes(rendered(tmp_path, "kolla", placement="report"), *WAYS)
    assert [code for code, _ in reported] == ([expected] if expected else [])


@pytest.mark.parametrize("ids", ['"vendor_id": "10de"', '"address": "0000:84:00.*"'])
def test_carried_devices_that_come_before_ours_are_reported(tmp_path, ids):
    merged = tmp_path / "nova-compute.conf"
    merged.write_text(f"[pci]\ndevice_spec = {{{ids}}}\n")
    rendering = rendered(tmp_path, "kolla", str(merged))
    assert ids in text_of(rendering, "gpu01/nova.conf")
    assert codes(rendering, *WAYS) == [("GPU312", "nova-compute.conf:2")]


def test_overrides_that_ours_would_replace_are_carried_over(tmp_path):
    filters = "[filter_scheduler]\nenabled_filters = ComputeFilter,DifferentHostFilter\n"
    there(tmp_path, {"../nova.conf": f"[pci]\nalias = {FPGA}\n{filters}", "nova-compute.conf": DEVICES})
    for _ in range(2):
        rendering = rendered(tmp_path, "kolla")
        assert codes(rendering, *WAYS) == []
        for name in ("nova-api.conf", "nova-compute.conf"):
            assert text_of(rendering, name).count(FPGA) == 1
        assert "ComputeFilter,DifferentHostFilter,PciPassthroughFilter" in text_of(rendering, "nova-scheduler.conf")
        for host in ("gpu01", "gpu-amd01"):
            assert text_of(rendering, f"{host}/nova.conf").count(NIC) == 1
        written(tmp_path, rendering)


def test_an_override_for_all_services_counts_before_there_is_a_directory_for_nova(tmp_path):
    (tmp_path / "etc/kolla/config").mkdir(parents=True)
    (tmp_path / "etc/kolla/config/nova.conf").write_text(f"[pci]\nalias = {FPGA}\n")
    assert FPGA in text_of(rendered(tmp_path, "kolla"), "nova-api.conf")


def test_jinja_expressions_are_carried_over_as_they_are_written(tmp_path):
    lines = "alias = {{ fpga | to_json }}\ndevice_spec = {{ nic | to_json }}\n"
    filters = "[filter_scheduler]\nenabled_filters = A,{{ more | join(',') }}\n"
    there(tmp_path, {"../nova.conf": f"[pci]\n{lines}{filters}"})
    rendering = rendered(tmp_path, "kolla")
    assert codes(rendering, *WAYS, "GPU380", "GPU381") == [("GPU312", "nova.conf:3")]
    (finding,) = (f for f in rendering.findings if f.code == "GPU312")
    assert "gpu-amd01" in finding.message
    assert "is a Jinja expression" in finding.message
    assert "alias = {{ fpga | to_json }}\n" in text_of(rendering, "nova-api.conf")
    assert "device_spec = {{ nic | to_json }}\n" in text_of(rendering, "gpu01/nova.conf")
    assert "= A,{{ more | join(',') }},PciPassthroughFilter\n" in text_of(rendering, "nova-scheduler.conf")


def test_a_host_with_overrides_for_another_service_keeps_the_common_devices(tmp_path):
    there(tmp_path, {"nova-compute.conf": DEVICES, "gpu01/nova-libvirt.conf": "[a]\nb = c\n"})
    assert NIC in text_of(rendered(tmp_path, "kolla"), "gpu01/nova.conf")


def test_an_option_that_another_override_replaced_is_not_revived(tmp_path):
    there(tmp_path, {"nova-compute.conf": DEVICES, "gpu01/nova.conf": DEVICES.replace("1521", "10ed")})
    for _ in range(2):
        rendering = rendered(tmp_path, "kolla")
        assert NIC not in text_of(rendering, "gpu01/nova.conf")
        assert NIC in text_of(rendering, "gpu-amd01/nova.conf")
        written(tmp_path, rendering)
    assert "10ed" in (tmp_path / NOVA / "gpu01/nova.conf").read_text()


def test_what_stands_in_the_very_file_adds_up(tmp_path):
    there(tmp_path, {"nova-api.conf": f"[pci]\nalias = {FPGA.replace('fpga', 'k4200')}\n"})
    assert codes(rendered(tmp_path, "kolla"), *WAYS) == [("GPU313", "nova-api.conf:2")]


@pytest.mark.parametrize(
    ("name", "code", "retained"),
    [
        ("RetryFilter", "GPU380", False),
        ("AvailabilityZoneFilter", "GPU380", False),
        ("ComputFilter", "GPU381", True),
        ("MineFilter", "GPU381", True),
        ("BlazarFilter", None, True),
    ],
)
def test_filters_that_the_release_lacks_are_not_carried_over_silently(tmp_path, name, code, retained):
    there(tmp_path, {"nova-scheduler.conf": f"[filter_scheduler]\nenabled_filters = ComputeFilter,{name}\n"})
    rendering = rendered(tmp_path, "kolla")
    assert codes(rendering, "GPU380", "GPU381") == ([(code, "nova-scheduler.conf:2")] if code else [])
    assert (name in text_of(rendering, "nova-scheduler.conf")) is retained


def test_a_filter_of_the_operator_is_carried_over(tmp_path):
    lines = "available_filters = nova.scheduler.filters.all_filters\navailable_filters = my.MineFilter\n"
    text = f"[filter_scheduler]\n{lines}enabled_filters = MineFilter\n"
    there(tmp_path, {"nova-scheduler.conf": text})
    rendering = rendered(tmp_path, "kolla")
    assert codes(rendering, "GPU380", "GPU381", "GPU318") == []
    assert "enabled_filters = MineFilter,PciPassthroughFilter\n" in text_of(rendering, "nova-scheduler.conf")


def test_the_first_run_names_files_that_do_not_exist_yet(tmp_path):
    """Nothing is there, then only directories of hosts."""
    directory = f"{tmp_path}/{NOVA}"
    assert codes(rendered(tmp_path, "kolla", f"scheduler={directory}/nova-scheduler.conf"), "GPU328") == [
        ("GPU328", "nova-scheduler.conf")
    ]
    there(tmp_path, {"gpu01/nova.conf": DEVICES})
    rendering = rendered(tmp_path, "kolla", directory, f"compute={directory}:{directory}/missing")
    assert codes(rendering, "GPU328") == [("GPU328", "missing")]
    assert NIC not in text_of(rendering, "gpu01/nova.conf"), "it stands in the same file already"
    assert NIC not in text_of(rendering, "gpu-amd01/nova.conf")


ENVIRONMENT = "etc/kayobe/environments/prod/kolla/config/nova"


def test_an_environment_of_kayobe_is_joined_with_what_it_builds_on(tmp_path):
    """kayobe joins files of the same name, so that the lines of both add up, before kolla-ansible merges."""
    base = tmp_path / "etc/kayobe/kolla/config"
    lower = tmp_path / "etc/kayobe/environments/lower/kolla/config"
    (tmp_path / "etc/kayobe/environments/prod").mkdir(parents=True)
    (tmp_path / "etc/kayobe/environments/prod/.kayobe-environment").write_text("dependencies: [lower]\n")
    for path, text in (
        (base / "nova/nova-api.conf", f"[pci]\nalias = {FPGA}\n"),
        (lower / "nova/nova-compute.conf", f"[pci]\nalias = {FPGA}\n"),
        (base / "nova.conf", DEVICES),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    rendering = rendered(tmp_path, "kayobe", directory=ENVIRONMENT)
    assert codes(rendering, *WAYS) == []
    texts = {f.path.partition("nova/")[2]: f.text for f in rendering.files}
    assert all(f.path.startswith(ENVIRONMENT) for f in rendering.files)
    assert FPGA not in texts["nova-api.conf"] + texts["nova-compute.conf"], "it adds up"
    assert NIC in texts["gpu01/nova.conf"], "ours replaces it"
    (lower / "nova/gpu01").mkdir()
    (lower / "nova/gpu01/nova-compute.conf").write_text(DEVICES)
    assert codes(rendered(tmp_path, "kayobe", directory=ENVIRONMENT), *WAYS) == [("GPU314", "nova-compute.conf:2")]


def test_a_rendering_into_the_base_and_an_environment_adds_up(tmp_path):
    written(tmp_path, rendered(tmp_path, "kayobe"))
    rendering = rendered(tmp_path, "kayobe", directory=ENVIRONMENT)
    files = {place.partition(":")[0] for _, place in codes(rendering, "GPU312")}
    assert files == {"nova-api.conf", "nova-compute.conf", "nova.conf"}


def test_the_inspected_directory_is_the_one_below_the_output(tmp_path):
    """An operator who renders into a new directory must not believe that /etc/kolla/config was read."""
    (finding,) = (f for f in rendered(tmp_path, "kolla").findings if f.code == "GPU322")
    assert finding.place == str(tmp_path / NOVA)


@pytest.mark.parametrize("directory", ["etc/kolla/config", NOVA, "."])
@pytest.mark.parametrize("of_all", ["../nova.conf", "../global.conf"])
def test_overrides_without_those_of_hosts_are_merged_too(tmp_path, monkeypatch, directory, of_all):
    """nova.conf beside the directory is for all services; it is no configuration of its own."""
    there(
        tmp_path,
        {
            of_all: f"[pci]\nalias = {FPGA}\n",
            "nova-api.conf": "[DEFAULT]\ndebug = true\n",
            "nova-scheduler.conf": "[filter_scheduler]\nenabled_filters = PciPassthroughFilter\n",
            "nova-compute.conf": '[pci]\ndevice_spec = {"vendor_id": "1172", "product_id": "09c4"}\n',
        },
    )
    monkeypatch.chdir(tmp_path / NOVA)
    report = lint(
        [directory if directory == "." else str(tmp_path / directory)], LintSubject(release=releases.release("2025.2"))
    )
    assert report.findings == ()


def test_overrides_for_one_service_of_one_host_are_merged(tmp_path):
    there(tmp_path, {"nova-api.conf": f"[pci]\nalias = {FPGA}\n", "gpu01/nova-compute.conf": "[pci]\nalias = {}\n"})
    report = lint([str(tmp_path / NOVA)], LintSubject(release=releases.release("2025.2")))
    assert ("GPU342", "gpu01") in {(f.code, f.message.rpartition("/")[2]) for f in report.findings}


@pytest.mark.parametrize(
    ("name", "text", "ignored"),
    [
        ("nova.conf", DEVICES, True),
        ("nova_compute.conf", DEVICES, True),
        ("ctl01/nova-api.conf", f"[pci]\nalias = {FPGA}\n", True),
        ("multipath.conf", "[defaults]\nuser_friendly_names = no\n", False),
        ("nova-novncproxy.conf", "[pci]\nalias = {}\n", False),
        ("gpu01/nova.conf", DEVICES, False),
    ],
)
def test_a_file_that_kolla_ansible_ignores_is_reported(tmp_path, name, text, ignored):
    """Guides put `[pci]` into `/etc/kolla/config/nova/nova.conf`, and lint checked it as nova.conf of all services."""
    there(tmp_path, {name: text})
    subject, file = LintSubject(release=releases.release("2025.2")), str(tmp_path / NOVA / name)
    expected = [("GPU376", f"{file}:2")] if ignored else []
    for directory in (tmp_path / NOVA, tmp_path / NOVA / "..", tmp_path):
        found = lint([str(directory)], subject).findings
        assert [(f.code, f.place.replace("/..", "")) for f in found if f.code == "GPU376"] == expected
    assert codes(rendered(tmp_path, "kolla"), "GPU376") == (
        [("GPU376", f"{name.rpartition('/')[2]}:2")] if ignored else []
    )
    alone = [f.place for f in lint([file], subject).findings if f.code == "GPU376"]
    assert alone == ([file] if name == "nova.conf" else [])
