"""No error and no log contains a secret that the process has read."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from gpustack.base.errors import GpustackError
from gpustack.base.known_secrets import forget, hidden, learn


@pytest.mark.parametrize(
    ("data", "text", "printed"),
    [
        ({"password": "geheim7"}, "refused: geheim7.", "refused: ***."),
        ({"auth": {"application_credential_secret": "geheim7"}}, "{'a': 'geheim7'}", "{'a': '***'}"),
        ({"token": "geheim7\n"}, r"value: 'geheim7\n'", r"value: '***\n'"),
        ({"password": ["geheim7"]}, "['geheim7'] is no string", "['***'] is no string"),
        ({"password": {"geheim7": 1}}, "{'geheim7': '1'} is no string", "{'***': '***'} is no string"),
        ({"password": 1234567}, "1234567 is no string", "*** is no string"),
        ("http://me:geheim7@cloud:5000/v3", "GET http://me:geheim7@cloud:5000/v3", "GET http://***@cloud:5000/v3"),
        ("http://me:geh%40im7@cloud", "geh@im7 and geh%40im7", "*** and ***"),
        ("http://me:ge/heim7@cloud", "no host: me:ge, path heim7@cloud", "no host: ***, path ***@cloud"),
        ("http://me:ge@heim7@cloud", "no host: heim7", "no host: ***"),
        ("git@cloud", "git at the cloud", "git at the cloud"),
        ("sqlite:////srv/a@b", "no file /srv/a@b", "no file /srv/a@b"),
        ({"password": 'ge\\h"eim7'}, r"""'ge\\h"eim7' or {"a": "ge\\h\"eim7"}""", """'***' or {"a": "***"}"""),
        ({"password": "geheim-ä7"}, r'{"a": "geheim-\u00e47"}', '{"a": "***"}'),
        ({"password": None, "secret": True, "token": ""}, "None, True", "None, True"),
        ({"password": "a"}, "a lock, option 'a'", "a lock, option '***'"),
        ({"password": "refuse"}, "refused", "refused"),
        ({"password": "admin", "username": "admin"}, "as admin", "as admin"),
    ],
)
def test_secrets_are_hidden_in_all_forms(data: Any, text: str, printed: str) -> None:
    learn(data)
    assert hidden(text) == printed
    error = GpustackError(text, where=text, remedy=text)
    assert (error.what, error.where, error.remedy, *error.args) == (printed,) * 4
    assert str(error) == f"{printed}: {printed}\n  → {printed}"


def test_records_of_all_loggers_hide_secrets(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("a.library")
    learn("http://me:geheim7@cloud:5000")
    logger.warning("no answer of %s", "http://me:geheim7@cloud:5000")
    logger.warning("%d hosts: %s", 3, ["a"])
    forget()
    logger.warning("geheim7")
    assert caplog.messages == ["no answer of http://***@cloud:5000", "3 hosts: ['a']", "geheim7"]
    assert caplog.records[1].args == (3, ["a"])


def test_logs_of_answers_have_no_secrets_of_tenants(caplog: pytest.LogCaptureFixture) -> None:
    learn({})
    body = {"servers": [{"id": "1", "OS-EXT-SRV-ATTR:user_data": "Z2VoZWlt"}, {"OS-EXT-SRV-ATTR:user_data": None}]}
    logging.getLogger("a.library").warning("RESP BODY: %s", json.dumps(body))
    logging.getLogger("a.library").warning("%s", {"adminPass": "geheim7", "user_data": "Z2VoZWlt", "name": "a"})
    body["servers"][0]["OS-EXT-SRV-ATTR:user_data"] = "***"
    assert caplog.messages == [
        f"RESP BODY: {json.dumps(body)}",
        "{'adminPass': '***', 'user_data': '***', 'name': 'a'}",
    ]
    assert hidden('"user_data": "Z2VoZWlt"') == '"user_data": "***"'


def test_secrets_are_forgotten_at_the_end() -> None:
    learn({"password": "geheim7"})
    forget()
    assert hidden("geheim7") == "geheim7"
