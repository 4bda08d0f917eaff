"""Which options are secret, and texts that are masked, stay readable, and do not take long."""

import base64
import json
import textwrap
import time

import pytest

from gpustack.nova_options.masking import MASK, Masking, is_secret

SECRET = "Zq9xw0rd7"


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
        (r"'password': 'it\'s Zq7x', 'a': 1", "'password': ***, 'a': 1"),
        ("rd.iscsi.password=Zq7,x);y quiet", "rd.iscsi.password=*** quiet"),
        ("PWD=/root iommu.passthrough=1 bypass=on", "PWD=/root iommu.passthrough=1 bypass=on"),
        ("CUSTOM_PCI_10DE_11B4 hw:pci_numa_affinity_policy", "CUSTOM_PCI_10DE_11B4 hw:pci_numa_affinity_policy"),
    ],
)
def test_texts_stay_readable(text: str, masked: str) -> None:
    assert Masking().text(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "netroot=iscsi:user:{}@192.0.2.1::3260::iqn.2011-01.example:disk",
        "netroot=iscsi:user:x:reverse:{}@192.0.2.1::3260::iqn.2011-01.example:disk",
        "rd.iscsi.password_in={} inst.rootpw={}",
        "//files/share /mnt cifs user=u,pass={},vers=3 0 0",
        'set superusers="root"\npassword root {}\n',
        "password_pbkdf2 root grub.pbkdf2.sha512.10000.{}.9CA46110",
        "rootpw --iscrypted $6$rounds=5000${}$abcdefghijklmn",
        "https://swift/v1/a/c/o?temp_url_sig={}&temp_url_expires=1",
        "inst.ks=https://s3/ks?X-Amz-Expires=9&X-Amz-Signature={} quiet",
        "NGC_CLI=nvapi-{}0123456789abcdef",
        "https://huggingface.co with hf_{}0123456789abcdef",
        "clone with glpat-{}0123456789abcdef, or ghp_{}0123456789abcdef",
        "curl -sS -u admin:{} https://bmc/",
        "curl --user 'admin:{}' https://bmc/",
        "curl -H 'Authorization: Basic dXNlcjp{}=' https://bmc/",
        "ipmitool -H bmc -U root -P {} chassis status",
        "sshpass -p '{}' ssh bmc",
        "mysql -u root -p{} nova",
        "CREATE USER nova IDENTIFIED BY '{}'",
        "openstack --os-password {} token issue",
        "MYSQL_PWD={} AWS_SECRET_ACCESS_KEY={} API_KEY={} wpa_psk={}",
        "license_key: {}",
        "chain http://boot/ipxe?key={}&mac=1",
        "http://boot/ipxe?mac=1&auth={}",
        "client_configuration_token {}",
        "PrivateKey = {}\nPresharedKey = {}",
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={};EndpointSuffix=core",
        "[wifi-security]\nwep-key0={}",
        "kubeadm join 192.0.2.1:6443 --certificate-key {}",
        '{"auths": {"nvcr.io": {"auth": "{}"}}}',
        "docker login -u '$oauthtoken' -p {} nvcr.io",
        "redis-cli -h db -a {} ping",
        "requirepass {}\nmasterauth {}",
        "ldapsearch -x -D cn=admin -w {}",
        '"Authorization": "Basic {}="',
        "Authorization: Token {}",
        'Authorization: Digest username="a", response="{}"',
        "Set-Cookie: JSESSIONID={}; Path=/",
        "machine bmc login root password {}",
        "echo root:{} | chpasswd",
        "d-i passwd/root-password password {}",
        "MENU MASTER PASSWD {}",
        "GRANT ALL ON nova.* TO nova IDENTIFIED WITH mysql_native_password BY '{}'",
        "rabbitmqctl add_user nova {}",
        "xoxb-123456789012-{}",
        "-----BEGIN OpenVPN Static key V1-----\n{}\n-----END OpenVPN Static key V1-----",
    ],
)
def test_secrets_of_command_lines_and_boot_files_are_masked(text: str) -> None:
    assert SECRET not in Masking().text(text.replace("{}", SECRET))


@pytest.mark.parametrize(
    "text",
    [
        "password: |\n  {}\n  {}\nother: 1",
        "password: >-\n    {}",
        "password: &shared {}",
        "password: !unsafe '{}'",
        "mysql --password \\\n  {}",
        "ipmitool -H bmc \\\n  -U root \\\n  -P {}",
        "<password>{}</password>",
        r"{\"password\": \"{}\"}",
        "{'X-Auth-Token': b'{}'}",
        "password=SecretStr('{}')",
        'password = """{}"""',
        "chpasswd:\n  list: |\n    root:{}\n    ubuntu:{}\n",
        "Password : {}",
    ],
)
def test_each_form_of_a_secret_is_masked_to_its_end(text: str) -> None:
    assert SECRET not in Masking().text(text.replace("{}", SECRET))


def test_base64_of_several_lines_is_masked_to_its_end() -> None:
    """A secret can begin in one line and end in the next."""
    for before in range(70):
        plain = f"#cloud-config\nhostname: {'x' * before}\npassword: {SECRET}{SECRET}\nlocale: C\n"
        masked = Masking().text("\n".join(textwrap.wrap(base64.b64encode(plain.encode()).decode(), 76)))
        assert masked == MASK, before


def test_a_learned_secret_is_masked_in_json_and_python() -> None:
    masking = Masking()
    masking.learn([{"password": 'Zq"9x\\w'}])
    assert masking.text(json.dumps('Zq"9x\\w')) == f'"{MASK}"'


def test_all_of_a_secret_of_several_values_is_masked() -> None:
    masked = Masking().data({"password": {"value": SECRET, "more": [SECRET, 17]}})
    assert masked == {"password": {"value": MASK, "more": [MASK, MASK]}}


def test_each_user_of_a_url_teaches_its_password() -> None:
    masking = Masking()
    masking.learn(["rabbit://nova:Zq7xw0rd@mq1:5672,nova:Zq8xw0rd@mq2:5672/"])
    assert masking.text("no login with Zq7xw0rd or Zq8xw0rd at mq1:5672") == "no login with *** or *** at mq1:5672"


def test_a_secret_of_one_text_is_masked_in_all() -> None:
    masking = Masking()
    data = {"a": "no login with Zq7xw0rd9", "auth": {"password": "Zq7xw0rd9"}, "b": ["WnE3eHcwcmQ5"], "password": 1}
    masking.learn(data)
    assert masking.data(data) == {"a": "no login with ***", "auth": {"password": MASK}, "b": [MASK], "password": MASK}


@pytest.mark.parametrize(
    "text",
    [
        "a" * 300_000,
        "://" * 30_000,
        ":" * 200_000 + "x",
        "%4" * 100_000,
        "password=" * 30_000,
        "-" * 200_000,
        "--a" * 50_000,
        "curl -u " * 20_000,
        "password a\n" * 20_000,
        "iscsi:" * 30_000,
        "password='\\" * 20_000,
        "$6$" * 50_000,
        "password: |\n " * 20_000,
        "password: &" * 20_000,
        "echo " * 50_000,
        "Authorization: " * 20_000,
        "docker login " * 20_000,
        "a.token " * 30_000,
        "\\\n" * 100_000,
    ],
)
def test_long_texts_are_masked_in_linear_time(text: str) -> None:
    begun = time.process_time()
    Masking().text(text)
    assert time.process_time() - begun < 5
