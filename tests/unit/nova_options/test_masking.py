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
        "ssh_key: admins-of-gpu01",
        "ssh_public_key: /etc/nova/id.pub",
        "authorized_key: ssh-rsa AAAAB3NzaC1yc2E admin",
        "host_key: ssh-ed25519 AAAAC3NzaC1lZDI1 gpu01",
        "sort_key: created_at sort_dir: asc, primary_key=instances.id",
        "openstack keypair create --public-key admins.pub admins",
        "sig_key with key 0B1C2D3E4F5A69788796A5B4C3D2E1F00F1E2D3C",  # a fingerprint of 40 digits
        "-- Unit 0000:65:00.0:12345 at 2026:1130:1011:1213:1415:1617:1819:2021 52:54:00:12:34:56:78:90",
        "nova/virt/libvirt/driver.py:10324: error in function spawn",
        "data:\n  a: b\nkind: ConfigMap\n",
    ],
)
def test_public_keys_and_places_stay_readable(text: str) -> None:
    assert Masking(keep_names=True).text(text) == text
    assert Masking(keep_names=True).data({"text": text}) == {"text": text}


def test_a_public_key_is_no_secret_in_plain_data() -> None:
    keys = {"ssh_key": "admins", "host_key": "ecdsa-sha2-nistp256 AAAAE2VjZHNh gpu01", "sort_key": "created_at"}
    masking = Masking()
    masking.learn(keys)
    assert masking.data(keys) == keys
    assert masking.text("admins, created_at") == "admins, created_at"


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
        "PuTTY-User-Key-File-3: ssh-rsa\nEncryption: none\nPrivate-Lines: 1\nAAAA{}\nPrivate-MAC: 0123456789abcdef",
        "db.example:5432:nova:nova:{}",
        "# ~/.pgpass\n*:*:*:postgres:{}\n/run/postgresql:5432:nova_cell0:nova:x\\:{}",
        "machine bmc login root account lab password {}",
        "machine bmc password {} login root",
        "auths:\n  nvcr.io:\n    auth: {}Zz==",
        "iscsiadm -m node -T iqn.x --op update -n node.session.auth.password -v {}",
        "qemu-system-x86_64 -object secret,id=sec0,format=raw,data={}",
        "influx -username admin -password {}",
        "config['password'] = '{}'",
        "<password><![CDATA[{}]]></password>",
        'proxy_set_header Authorization "Basic {}";',
        "user admin insecure-password {}\nstats auth admin:{}",
        "pro attach {}",
        "unzip -P {} driver.zip",
        "helm upgrade --set db.pwd={}",
        "apiVersion: v1\ndata:\n  any.name: {}\n\n  other: {}\nkind: Secret\n",
        "- kind: Secret\n  stringData:\n    nova.conf: |\n      x {}\n\n      y {}\n  type: Opaque",
        r"{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"stringData\":{\"x\":\"{}\"}}",
        '{"kind": "Secret", "data": {"x": "{}',
    ],
)
def test_secrets_of_command_lines_and_boot_files_are_masked(text: str) -> None:
    assert SECRET not in Masking().text(text.replace("{}", SECRET))


@pytest.mark.parametrize(
    "text",
    [
        "password: |\n  {}\n  {}\nother: 1",
        "password: |\n  first line\n\n  {}\nother: 1",
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


@pytest.mark.parametrize("digits", [32, 48, 64, 128])
@pytest.mark.parametrize(
    "text",
    [
        "luks key {}",
        '{"master_key": "{}"}',
        "encryption key = 0x{}",
        "ip macsec add macsec0 tx sa 0 pn 1 on key 01 {}",
        "ip xfrm state add proto esp spi 0x1 auth 'hmac(sha1)' 0x{} enc 'cbc(aes)' 0x{}",
        "0 100 crypt aes-xts-plain64 {} 0 8:0 4096",
    ],
)
def test_keys_of_ciphers_are_masked(text: str, digits: int) -> None:
    key = ("3f2a9c0d1e4b5a69" * 8)[:digits]
    assert key not in Masking(keep_names=True).text(text.replace("{}", key))


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
        "kind: Secret data: {" * 20_000,
        "kind: Secret data:\n a\n\n" * 20_000,
        "a:1234:" * 50_000,
        "secret,a=b," * 30_000,
        "machine a login a " * 20_000,
        "-a" * 100_000,
    ],
)
def test_long_texts_are_masked_in_linear_time(text: str) -> None:
    begun = time.process_time()
    Masking().text(text)
    assert time.process_time() - begun < 5
