"""Gateways that start together in a namespace that does not exist yet: a new deployment of a fleet."""

import asyncio

from deploy.local.standalone import PulsarStandalone
from gateway.config.gateway_config import PulsarSection
from gateway.namespace import prepare_namespaces
from gateway.pulsar.admin.client import AdminClient
from tests.support.names import unique_topic

ROUNDS, GATEWAYS = 20, 5
STAGGER_S = 0.003


async def test_all_of_them_find_the_namespaces_that_one_has_created(pulsar: PulsarStandalone) -> None:
    for _ in range(ROUNDS):
        section = PulsarSection(
            service_url=pulsar.service_url, admin_url=pulsar.admin_url,
            tenant=unique_topic("tenant"), namespace=unique_topic("namespace"),
        )  # fmt: skip
        await asyncio.gather(*[_start(section, number * STAGGER_S) for number in range(GATEWAYS)])


async def _start(section: PulsarSection, after_s: float) -> None:
    await asyncio.sleep(after_s)
    admin = AdminClient(section)
    try:
        await prepare_namespaces(admin, section)
    finally:
        await admin.close()
