"""Who may fetch from a topic."""

from gateway.fetching.fetch_answer import PartitionAnswer
from gateway.requests.call import Call
from protocol.kafka.acl import CLUSTER_NAME, AclOperation, ResourceType
from protocol.kafka.errors import ErrorCode
from protocol.kafka.messages.records import FetchRequest


def may_read(call: Call[FetchRequest], topic: str) -> bool:
    """As in Kafka, replicas need a right on the cluster instead. A denial is logged."""
    right = (AclOperation.READ, ResourceType.TOPIC, topic)
    if is_of_a_replica(call.request):
        right = (AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    allowed = call.context.policy.allows(*right)
    if not allowed:
        call.audit_denied(*right)
    return allowed


def while_allowed(call: Call[FetchRequest], topic: str | None, row: PartitionAnswer) -> PartitionAnswer:
    """The row, if the client may still read the topic: the fetch may have waited for long."""
    if row.error_code or topic is None or may_read(call, topic):
        return row
    return PartitionAnswer(row.fetched, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def is_of_a_replica(request: FetchRequest) -> bool:
    """A broker names itself; from v15 on, in a tagged field."""
    state = request.replica_state
    return request.replica_id >= 0 or (state is not None and state.replica_id >= 0)
