"""ApiVersions (key 18), v0-v4: the APIs of the handler table.

v1 throttle time; v3 flexible body, client software name and version (KIP-511), features; v4 features may begin at 0.
`transaction.version` is the version of the whole fleet: clients use the response with the highest epoch, the fleet's.
The response header is never flexible. An unknown version is answered as v0 with UNSUPPORTED_VERSION and this API alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gateway.coordination.transactions.transaction_service import TRANSACTION_VERSION
from gateway.requests.call import Api, Call
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.cluster import ApiVersionsRequest, ApiVersionsResponse

FROM_ZERO_VERSION = 4
_TRANSACTION = "transaction.version"
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
MAX_SOFTWARE_CHARS = 100
"""Of the client's software name and version: they are stored, and sent before login, too."""


class UnknownVersion(ApiVersionsRequest):
    """The request has a version that this gateway cannot read."""

    __slots__ = ()


def handle(call: Call[ApiVersionsRequest], apis: Iterable[Api]) -> ApiVersionsResponse:
    """`apis` are the rows of the handler table."""
    request = call.request
    if isinstance(request, UnknownVersion):
        return _response(
            ErrorCode.UNSUPPORTED_VERSION, [_row(call.api.key, call.api.min_version, call.api.max_version)]
        )
    if call.version >= 3:
        name, version = request.client_software_name or "", request.client_software_version or ""
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return _response(ErrorCode.INVALID_REQUEST, [])
        name, version = name[:MAX_SOFTWARE_CHARS], version[:MAX_SOFTWARE_CHARS]
        call.client.software_name, call.client.software_version = name, version
        call.cluster.metrics.software(name, version)
    rows = [_row(api.key, api.min_version, api.max_version) for api in apis]
    response = _response(ErrorCode.NONE, rows)
    _add_features(call, response)
    return response


def _add_features(call: Call, response: ApiVersionsResponse) -> None:
    """A feature that is not named has level 0."""
    fleet = call.cluster.fleet
    if call.version >= FROM_ZERO_VERSION:
        supported = ApiVersionsResponse.SupportedFeatureKey(name=_TRANSACTION, max_version=TRANSACTION_VERSION)
        response.supported_features.append(supported)
    response.finalized_features_epoch = fleet.epoch
    level = fleet.transaction_version
    if level > 0:
        response.finalized_features.append(
            ApiVersionsResponse.FinalizedFeatureKey(name=_TRANSACTION, max_version_level=level, min_version_level=level)
        )


def _row(key: int, low: int, high: int) -> ApiVersionsResponse.ApiVersion:
    return ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)


def _response(code: ErrorCode, rows: list[ApiVersionsResponse.ApiVersion]) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=code, api_keys=rows)
