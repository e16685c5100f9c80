"""Properties files of clients, as in the guides."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.local.secured import DEVELOPER, LocalSecurity
from gateway.client_properties import InvalidProperties, read_client_properties


@pytest.mark.parametrize("name", ["client.properties", "librdkafka.conf"])
def test_the_files_of_a_secured_system(tmp_path: Path, name: str) -> None:
    security = LocalSecurity(tmp_path)
    security.write_clients("127.0.0.1:9092")
    assert read_client_properties(tmp_path / name) == {
        "security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_plain_username": DEVELOPER,
        "sasl_plain_password": f"token:{security.token(DEVELOPER)}", "ssl_cafile": str(security._authority.certificate),
    }  # fmt: skip


def test_java_s_forms(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "# a comment\n\nsecurity.protocol = SSL\nssl.keystore.type=PEM\nssl.keystore.location=/k.pem\n"
        "ssl.endpoint.identification.algorithm=\nrequest.timeout.ms=5\n"
        'sasl.jaas.config=org.Module required \\\n  username="a b" \\\n  password="q\\"=\\\\x";\n'
    )
    assert read_client_properties(file) == {
        "security_protocol": "SSL", "ssl_certfile": "/k.pem", "ssl_keyfile": "/k.pem", "ssl_check_hostname": False,
        "sasl_plain_username": "a b", "sasl_plain_password": 'q"=\\x',
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ssl.truststore.location=/t.jks", "PEM"), ("ssl.keystore.location=/k\nssl.keystore.type=JKS", "PEM"),
        ("sasl.mechanism=OAUTHBEARER\nsasl.password=canary", "mechanism"), ("sasl.mechanism=GSSAPI", "mechanism"),
    ],
)  # fmt: skip
def test_what_cannot_be_used(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    with pytest.raises(InvalidProperties, match=why) as refused:
        read_client_properties(file)
    assert "canary" not in str(refused.value)


def test_no_file(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name in ("missing", "binary"):
        with pytest.raises(InvalidProperties):
            read_client_properties(tmp_path / name)
