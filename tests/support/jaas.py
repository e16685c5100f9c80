"""The login settings of Java clients, and of Kafka itself (`sasl.jaas.config`)."""

from __future__ import annotations

_SECURITY = "org.apache.kafka.common.security"


def jaas_config(mechanism: str, user: str, password: str) -> str:
    module = f"{_SECURITY}.plain.PlainLoginModule"
    if mechanism.startswith("SCRAM"):
        module = f"{_SECURITY}.scram.ScramLoginModule"
    return f'{module} required username="{user}" password="{password}";'


def plain_users(users: dict[str, str]) -> str:
    """The setting of a server."""
    options = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    return f"{_SECURITY}.plain.PlainLoginModule required {options};"


SCRAM_SERVER = f"{_SECURITY}.scram.ScramLoginModule required;"
BEARER_SERVER = f'{_SECURITY}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="kafka";'
BEARER_VALIDATOR = f"{_SECURITY}.oauthbearer.secured.OAuthBearerValidatorCallbackHandler"
BEARER_LOGIN = f"{_SECURITY}.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
BEARER_CLIENT = f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule required;"
