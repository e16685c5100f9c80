"""Pulsar's admin REST API, for what the binary protocol cannot do."""

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.pulsar.admin.http import AdminHttp, quoted
from gateway.pulsar.admin.topics import TopicsAdmin
from gateway.pulsar.settings import PulsarSettings

MAX_INT = 2**31 - 1


class NamespacesAdmin:
    """Tenants and namespaces. Every method raises AdminError."""

    def __init__(self, http: AdminHttp) -> None:
        self._http = http

    async def create_tenant(self, tenant: str, allowed_clusters: Sequence[str]) -> None:
        """AdminError has status 409 if the tenant exists."""
        body = {"allowedClusters": list(allowed_clusters)}
        await self._http.request("PUT", f"tenants/{quoted(tenant)}", body=body)

    async def tenant(self, tenant: str) -> dict[str, Any]:
        """The tenant's `adminRoles` and `allowedClusters`. Needs more than the rights of a tenant administrator."""
        found: dict[str, Any] = await self._http.get_json(f"tenants/{quoted(tenant)}")
        return found

    async def create(
        self, namespace: str, *, retention_minutes: int, retention_mb: int = -1,
        more_policies: Mapping[str, object] | None = None,
    ) -> None:
        """Create `tenant/namespace`. It retains data, keeps unused topics, and does not create topics automatically.

        AdminError has status 409 if the namespace exists.

        Data older than the retention counts as consumed by every subscription (message TTL): an unused subscription
        would keep it for ever. `more_policies` has the names that are used in the result of `policies`.
        """  # fmt: skip
        policies: dict[str, object] = {
            "retention_policies": {"retentionTimeInMinutes": retention_minutes, "retentionSizeInMB": retention_mb},
            "inactive_topic_policies": {
                "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
                "maxInactiveDurationSeconds": 60,
                "deleteWhileInactive": False,
            },
            # A producer that reconnects would recreate a partition that is being deleted (apache/pulsar#24571).
            "autoTopicCreationOverride": {"allowAutoTopicCreation": False},
        }
        if retention_minutes >= 0:
            policies["message_ttl_in_seconds"] = min(retention_minutes * 60, MAX_INT)
        await self._http.request("PUT", f"namespaces/{namespace}", body={**policies, **(more_policies or {})})

    async def policies(self, namespace: str) -> dict[str, Any]:
        """The policies in Pulsar's format. A policy that was never set is missing or None."""
        found: dict[str, Any] = await self._http.get_json(f"namespaces/{namespace}")
        return found

    async def set_policy(self, namespace: str, policy: str, value: object) -> None:
        """POST a policy; `policy` is its path, such as `retention` or `inactiveTopicPolicies`."""
        await self._http.request("POST", f"namespaces/{namespace}/{policy}", body=value)

    async def delete(self, namespace: str, *, force: bool = False) -> None:
        params = {"force": "true" if force else "false"}
        await self._http.request("DELETE", f"namespaces/{namespace}", params=params)


class BrokersAdmin:
    """Clusters and brokers. Every method raises AdminError."""

    def __init__(self, http: AdminHttp) -> None:
        self._http = http

    async def clusters(self) -> list[str]:
        names: list[str] = await self._http.get_json("clusters")
        return names

    async def runtime_configuration(self) -> dict[str, str]:
        """Every setting of the broker that answers, as text."""
        found: dict[str, str] = await self._http.get_json("brokers/configuration/runtime")
        return found


class AdminClient:
    """The admin API: `topics`, `namespaces` and `brokers`. Create it in the event loop, and close it."""

    def __init__(self, settings: PulsarSettings) -> None:
        self._http = AdminHttp(settings)
        self.topics = TopicsAdmin(self._http, settings.max_admin_connections)
        self.namespaces = NamespacesAdmin(self._http)
        self.brokers = BrokersAdmin(self._http)

    async def close(self) -> None:
        await self._http.close()
