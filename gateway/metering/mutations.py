"""The quota for changes of topics, charged by the number of partitions (KIP-599).

Handlers charge what they are about to change: what is invalid costs nothing. Old clients get their answer, and then
have to wait. From the versions that know THROTTLING_QUOTA_EXCEEDED, changes are refused while the bucket is in debt.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.errors import KafkaError
from gateway.security.quota_rates import TokenBucket
from protocol.kafka.api_key import ApiKey
from protocol.kafka.errors import ErrorCode

STRICT_VERSIONS: dict[int, int] = {ApiKey.CreateTopics: 6, ApiKey.CreatePartitions: 3, ApiKey.DeleteTopics: 5}
"""By API key: the first version that knows the error."""


class MutationCharges:
    """The charges of one request, at `rate` partitions per second."""

    __slots__ = ("_bucket", "_is_strict", "_now_ms", "_rate", "_refused")

    def __init__(self, bucket: TokenBucket, rate: float, now_ms: Callable[[], float], *, is_strict: bool) -> None:
        self._bucket, self._rate, self._now_ms = bucket, rate, now_ms
        self._is_strict = is_strict
        self._refused = False

    def __call__(self, partitions: int) -> None:
        """Raises KafkaError if the change is refused."""
        now_ms = self._now_ms()
        if self._is_strict and self._bucket.is_empty(self._rate, now_ms):
            self._refused = True
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        self._bucket.take(partitions, self._rate, now_ms)

    def throttle_time_ms(self) -> int:
        """A client that knows the error waits only if something was refused."""
        if self._is_strict and not self._refused:
            return 0
        return self._bucket.throttle_time_ms(self._rate, self._now_ms())
