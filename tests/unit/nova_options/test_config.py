"""The configuration reader agrees with oslo.config itself, and knows the lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from oslo_config import cfg

from gpustack.base.errors import NovaConfigError
from gpustack.cli.app import main
from gpustack.nova_options import releases
from gpustack.nova_options.config import files_of, read_files

ALIAS = releases.option("pci/alias")
SPEC = releases.option("pci/device_spec")
FILTERS = releases.option("filter_scheduler/enabled_filters")


def oslo(files: list[Path]) -> cfg.ConfigOpts:
    """oslo.config with Nova's own definitions of these options (nova/conf/pci.py, nova/conf/scheduler.py)."""
    conf = cfg.ConfigOpts()
    conf.register_opts(
        [
            cfg.MultiStrOpt("alias", default=[], deprecated_name="pci_alias", deprecated_group="DEFAULT"),
            cfg.MultiStrOpt(
                "device_spec",
                default=[],
                deprecated_opts=[
                    cfg.DeprecatedOpt("passthrough_whitelist", group="pci"),
                    cfg.DeprecatedOpt("pci_passthrough_whitelist", group="DEFAULT"),
                ],
            ),
        ],
        group="pci",
    )
    conf.register_opts(
        [cfg.StrOpt("enabled_filters", deprecated_name="scheduler_default_filters", deprecated_group="DEFAULT")],
        group="filter_scheduler",
    )
    conf([], default_config_files=[str(file) for file in files], default_config_dirs=[])
    return conf


LINES = st.sampled_from(
    [
        "[pci]",
        "[PCI]",
        "[DEFAULT]",
        "[filter_scheduler]",
        "alias = one",
        "alias: two",
        "pci_alias = old",
        'alias = {"a": 1,',
        '  "b": 2}',
        "device_spec = '{}'",
        "passthrough_whitelist = white",
        "pci_passthrough_whitelist=whiter",
        "enabled_filters = A,B",
        "scheduler_default_filters = C",
        "# comment",
        "; comment",
        "",
        "other = x = y",
    ]
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(LINES, max_size=12), min_size=1, max_size=3))
@example([["[pci]", "passthrough_whitelist = white", "[DEFAULT]", "pci_passthrough_whitelist=whiter"]])
def test_merging_is_that_of_oslo_config(tmp_path_factory, texts):
    directory = tmp_path_factory.mktemp("conf")
    files = []
    for number, lines in enumerate(texts):
        files.append(directory / f"{number}.conf")
        files[-1].write_text("\n".join(lines) + "\n")
    try:
        reference = oslo(files)
    except cfg.ConfigFileParseError:
        with pytest.raises(NovaConfigError):
            read_files(files)
        return
    merged = read_files(files)
    assert [s.value for s in merged.effective(ALIAS)] == reference.pci.alias
    assert [s.value for s in merged.effective(SPEC)] == reference.pci.device_spec
    filters = [s.value for s in merged.effective(FILTERS)]
    assert (filters[0] if filters else None) == reference.filter_scheduler.enabled_filters


def test_a_value_knows_the_line_it_begins_on(tmp_path):
    file = tmp_path / "nova.conf"
    file.write_text('[pci]\n\nalias = {"name": "a",\n  "vendor_id": "10de"}\nalias = b\n')
    first, second = read_files([file]).effective(ALIAS)
    assert (first.line, second.line) == (3, 5)
    assert first.value == '{"name": "a",\n"vendor_id": "10de"}'
    assert first.place == f"{file}:3"


def test_a_broken_file_is_named_with_its_line(tmp_path):
    file = tmp_path / "nova.conf"
    file.write_text("[pci]\nalias\n")
    with pytest.raises(NovaConfigError, match=r"nova\.conf:2.*No ':' or '='"):
        read_files([file])


def test_a_directory_is_read_as_a_service_finds_it(tmp_path):
    for name in ("nova.conf", "nova-compute.conf", "nova.conf.d/10.conf", "nova-compute.conf.d/20.conf", "other.conf"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("[pci]\n")
    files = [str(file.relative_to(tmp_path)) for file in files_of(tmp_path, service="compute")]
    assert files == ["nova.conf", "nova-compute.conf", "nova.conf.d/10.conf", "nova-compute.conf.d/20.conf"]
    assert [f.name for f in files_of(tmp_path / "nova.conf.d")] == ["10.conf"]
    with pytest.raises(NovaConfigError, match="no such file"):
        files_of(tmp_path / "missing")


def test_values_that_name_options_are_those_of_oslo_config(tmp_path):
    file = tmp_path / "nova.conf"
    file.write_text(
        "[DEFAULT]\nscheduler_default_filters = A,B\npci_alias = a$$b\nhost = $tempdir\n"
        '[pci]\nalias = ${host}\nalias = $filter_scheduler.enabled_filters\nalias = \\$host $" $ $host$\n'
        "[filter_scheduler]\nenabled_filters = C\n[DEFAULT]\ntempdir = $$x\n"
    )
    conf = oslo([])
    conf.register_opts([cfg.StrOpt("host"), cfg.StrOpt("tempdir")])
    conf([], default_config_files=[str(file)], default_config_dirs=[])
    settings = read_files([file]).effective(ALIAS)
    assert [s.value for s in settings] == conf.pci.alias == ["a$b", "$x", "C", '$host $" $ $x$']
    assert [s.names for s in settings] == [(), ("host",), ("filter_scheduler.enabled_filters",), ("host",)]
    assert settings[1].written == "${host}"


def test_variables_that_no_file_sets_are_reported(tmp_path):
    file = tmp_path / "nova.conf"
    file.write_text("[pci]\nalias = $unset\nalias = $report_in_placement\nreport_in_placement = $report_in_placement\n")
    first, second = read_files([file]).effective(ALIAS)
    assert (first.value, first.unknown) == ("$unset", ("unset",))
    assert "report_in_placement" in second.unknown


def test_lines_end_where_they_do_in_a_file(tmp_path):
    file = tmp_path / "nova.conf"
    file.write_text("# a form feed \x0c and a separator \u2028 end no line\n[pci]\r\nalias = x\r\n")
    (setting,) = read_files([file]).effective(ALIAS)
    assert (setting.value, setting.line) == ("x", 3)
    assert oslo([file]).pci.alias == ["x"]


def test_drop_ins_are_what_oslo_config_finds(tmp_path):
    """Hidden files, as editors leave them, are not read; a link to nowhere stops the service."""
    directory = tmp_path / "nova.conf.d"
    directory.mkdir()
    (tmp_path / "nova.conf").write_text("")
    (directory / ".#10.conf").write_text("no INI file")
    (directory / "10.conf").write_text("[pci]\nalias = x\n")
    assert [s.value for s in read_files(files_of(tmp_path)).effective(ALIAS)] == ["x"]
    (directory / "20.conf").symlink_to(directory / "nowhere")
    with pytest.raises(NovaConfigError, match=r"20\.conf: can't be read"):
        read_files(files_of(tmp_path))
    (directory / "20.conf").unlink()
    (directory / "20.conf").mkdir()
    with pytest.raises(NovaConfigError, match=r"20\.conf: is no regular file"):
        read_files(files_of(tmp_path))


TENFOLD = "\n".join(f"a{n} = {f'$a{n + 1}' * 10}" for n in range(7))


@pytest.mark.parametrize(
    "text",
    [
        f"[DEFAULT]\n{TENFOLD}\na7 = xxxxxxxx\n",
        f"[DEFAULT]\n{TENFOLD}\na7 =\n",
        f"[DEFAULT]\n{TENFOLD}\n",
        f"[DEFAULT]\na = {'x' * 60_000}\n" + "b = $a\n" * 60_000,
    ],
    ids=["long", "empty", "unknown", "wide"],
)
def test_references_that_multiply_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "nova.conf").write_text(text)
    with pytest.raises(NovaConfigError, match="name one another"):
        read_files([tmp_path / "nova.conf"])


@pytest.mark.parametrize(
    ("name", "reference", "code"),
    [
        ("[DEFAULT]\ntransport_url", "$transport_url", "GPU340"),
        ("[database]\nconnection", "${database.connection}", "GPU340"),
        ("[api_database]\nslave_connection", "$api_database.slave_connection", "GPU340"),
        ("[keystone_authtoken]\npassword", "$keystone_authtoken.password", "GPU340"),
        ("[keystone_authtoken]\nmemcache_secret_key", "$keystone_authtoken.memcache_secret_key", "GPU340"),
        ("[DEFAULT]\ntransport_url = rabbit://nova:s3cr3t@mq/\nother = $transport_url\nmore", "$other", "GPU533"),
    ],
)
def test_a_password_reaches_no_finding(
    name: str, reference: str, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nova.conf"
    path.write_text(
        f"{name} = rabbit://nova:s3cr3t@mq/\n[pci]\nalias = {reference}\nreport_in_placement = {reference}\n"
    )
    assert main(["nova", "lint", str(path), "--release", "2025.2", "-f", "json"]) != 0
    output = capsys.readouterr()
    assert code in output.out
    assert "s3cr3t" not in output.out + output.err
