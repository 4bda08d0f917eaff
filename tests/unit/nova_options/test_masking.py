"""Which options are secret, and texts that are masked, stay readable, and do not take long."""

import time

import pytest

from gpustack.nova_options.masking import MASK, Masking, is_secret


@pytest.mark.parametrize(
    ("path", "secret"),
    [
        ("neutron/password", True),
        ("DEFAULT/transport_url", True),
        ("placement_database/connection", True),
        ("sql/connection", True),  # a deprecated name of oslo.db's option
        ("keystone_authtoken/client-secret", True),
        ("oslo_messaging_kafka/ssl_client_key_password", True),  # oslo.messaging does not mark it
        ("vendor/anything", True),
        ("pci/alias", False),
        ("DEFAULT/password_length", False),
        ("mdev_nvidia-35/device_addresses", False),
        ("key_manager/barbican_api_key", True),
    ],
)
def test_options_are_secret_by_their_tables(path: str, secret: bool) -> None:
    assert is_secret(path) is secret


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("0000:65:00.0 10de:20b5 at 14:02:03, kernel 6.1.0-18", "0000:65:00.0 10de:20b5 at 14:02:03, kernel 6.1.0-18"),
        ("check the user, the password and the project", "check the user, the password and the project"),
        ("driver 580.95.05, mail to a@b.example", "driver 580.95.05, mail to a@b.example"),
        ("10.0.0.7 fe80::1 127.0.0.1 ::1 10.0.0.7", "address-1 address-2 127.0.0.1 ::1 address-1"),
        ("rabbit://a:p@h1,b:q@h2/v", "rabbit://***@h2/v"),
        ("OS_PASSWORD=Zq7x 'token': 'Zq8x'", "OS_PASSWORD=*** 'token': ***"),
        ("CUSTOM_PCI_10DE_11B4 hw:pci_numa_affinity_policy", "CUSTOM_PCI_10DE_11B4 hw:pci_numa_affinity_policy"),
    ],
)
def test_texts_stay_readable(text: str, masked: str) -> None:
    assert Masking().text(text) == masked


def test_a_secret_of_one_text_is_masked_in_all() -> None:
    masking = Masking()
    data = {"a": "no login with Zq7xw0rd9", "auth": {"password": "Zq7xw0rd9"}, "b": ["WnE3eHcwcmQ5"], "password": 1}
    masking.learn(data)
    assert masking.data(data) == {"a": "no login with ***", "auth": {"password": MASK}, "b": [MASK], "password": MASK}


@pytest.mark.parametrize(
    "text", ["a" * 300_000, "://" * 30_000, ":" * 200_000 + "x", "%4" * 100_000, "password=" * 30_000]
)
def test_long_texts_are_masked_in_linear_time(text: str) -> None:
    begun = time.process_time()
    Masking().text(text)
    assert time.process_time() - begun < 5
