"""The handler table: which APIs and versions this gateway serves. ApiVersions answers from it, dispatch calls by it."""

from __future__ import annotations

from kafka.protocol import admin, consumer, metadata, producer

from gateway.handlers import (
    api_versions,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    produce,
)
from gateway.handlers import metadata as metadata_handler
from gateway.handlers.call import Api

APIS: dict[int, Api] = {
    api.key: api
    for api in (
        Api(0, 0, 12, producer.ProduceRequest, producer.ProduceResponse, produce.handle),
        Api(1, 0, 17, consumer.FetchRequest, consumer.FetchResponse, fetch.handle),
        Api(2, 0, 10, consumer.ListOffsetsRequest, consumer.ListOffsetsResponse, list_offsets.handle),
        Api(3, 0, 13, metadata.MetadataRequest, metadata.MetadataResponse, metadata_handler.handle),
        Api(10, 0, 6, metadata.FindCoordinatorRequest, metadata.FindCoordinatorResponse, find_coordinator.handle),
        Api(18, 0, 4, metadata.ApiVersionsRequest, metadata.ApiVersionsResponse, api_versions.handle),
        Api(19, 0, 7, admin.CreateTopicsRequest, admin.CreateTopicsResponse, create_topics.handle),
        Api(20, 0, 6, admin.DeleteTopicsRequest, admin.DeleteTopicsResponse, delete_topics.handle),
        Api(22, 0, 5, producer.InitProducerIdRequest, producer.InitProducerIdResponse, init_producer_id.handle),
        Api(32, 0, 4, admin.DescribeConfigsRequest, admin.DescribeConfigsResponse, describe_configs.handle),
        Api(37, 0, 3, admin.CreatePartitionsRequest, admin.CreatePartitionsResponse, create_partitions.handle),
        Api(60, 0, 2, admin.DescribeClusterRequest, admin.DescribeClusterResponse, describe_cluster.handle),
    )
}
