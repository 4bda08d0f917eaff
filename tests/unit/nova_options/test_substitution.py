"""Options that name one another: without measure, as a hostile host's nova.conf may have them, or with a password."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.base.errors import NovaConfigError
from gpustack.cli.app import main
from gpustack.nova_options.config import read_files

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
    ("name", "reference"),
    [
        ("[DEFAULT]\ntransport_url", "$transport_url"),
        ("[database]\nconnection", "${database.connection}"),
        ("[api_database]\nslave_connection", "$api_database.slave_connection"),
        ("[keystone_authtoken]\npassword", "$keystone_authtoken.password"),
        ("[keystone_authtoken]\nmemcache_secret_key", "$keystone_authtoken.memcache_secret_key"),
        ("[DEFAULT]\ntransport_url = rabbit://nova:s3cr3t@mq/\nother = $transport_url\nmore", "$other"),
    ],
)
def test_a_password_reaches_no_finding(
    name: str, reference: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nova.conf"
    path.write_text(
        f"{name} = rabbit://nova:s3cr3t@mq/\n[pci]\nalias = {reference}\nreport_in_placement = {reference}\n"
    )
    assert main(["nova", "lint", str(path), "--release", "2025.2", "-f", "json"]) != 0
    output = capsys.readouterr()
    assert "GPU340" in output.out
    assert "s3cr3t" not in output.out + output.err
