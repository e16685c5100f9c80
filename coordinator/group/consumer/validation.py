"""Validates a ConsumerGroupHeartbeat and its sender."""

from collections.abc import Collection

from coordinator.group.consumer.assignment import Assignment
from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH, ConsumerMember
from coordinator.group.consumer.messages import ConsumerHeartbeatRequest, MayDescribe
from coordinator.group.messages import MAX_MEMBER_BYTES, RefusedError
from coordinator.group.records.codec import encode_record
from coordinator.group.records.consumer_group import ConsumerGroupMemberMetadataKey
from coordinator.group.records.fields import MAX_CHARACTER_BYTES, MAX_STRING_BYTES
from coordinator.topic_regex import problem_of
from protocol.kafka.errors import ErrorCode

MAX_TOPIC_NAMES = 20_000
"""The limit of one subscription. In Kafka the limit is a record of 1 MB. Each name takes time in each rebalance of the
group, for which the event loop waits."""
MAX_NAMES_OF_GROUP = 40_000
"""The same for the different subscriptions of a group's members, and what their expressions match. Mostly there is one
subscription."""
_TOO_MANY = f"The members' subscriptions must not have more than {MAX_NAMES_OF_GROUP} different names."
_TRIMMED = "".join(map(chr, range(ord(" ") + 1)))


def check_request(request: ConsumerHeartbeatRequest, assignors: Collection[str]) -> None:
    """Raises RefusedError if the request contradicts itself."""
    problem = contradiction(request)
    if problem is not None:
        raise RefusedError(ErrorCode.INVALID_REQUEST, problem)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )
    problem = request.regex_problem or problem_of(request.subscribed_topic_regex or "")
    if problem is not None:
        raise RefusedError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"SubscribedTopicRegex is refused: {problem}.")


def contradiction(request: ConsumerHeartbeatRequest) -> str | None:
    """Why the request is invalid, whatever the group."""
    if _is_blank(request.group_id):
        return "GroupId can't be empty."
    if request.instance_id is not None and _is_blank(request.instance_id):
        return "InstanceId can't be empty."
    if request.rack_id is not None and _is_blank(request.rack_id):
        return "RackId can't be empty."
    problem = _too_large(request)
    if problem is not None:
        return problem
    if request.member_epoch == JOIN_EPOCH:
        return _problem_of_a_join(request)
    return _problem_of_a_member(request)


def _too_large(request: ConsumerHeartbeatRequest) -> str | None:
    ids = (request.member_id, request.instance_id or "", request.rack_id or "")
    if any(len(text.encode()) > MAX_STRING_BYTES for text in ids):
        return "MemberId, InstanceId or RackId is too long."
    names = request.subscribed_topic_names or ()
    if len(names) > MAX_TOPIC_NAMES:
        return f"SubscribedTopicNames must not have more than {MAX_TOPIC_NAMES} names."
    if sum(len(name.encode()) for name in names) > MAX_MEMBER_BYTES:
        return f"SubscribedTopicNames must not have more than {MAX_MEMBER_BYTES} bytes."
    return None


def _problem_of_a_member(request: ConsumerHeartbeatRequest) -> str | None:
    if request.member_epoch < LEAVE_STATIC_EPOCH:
        return "MemberEpoch is invalid."
    if _is_blank(request.member_id):
        return "MemberId can't be empty."
    if request.member_epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        return "InstanceId can't be null."
    return None


def _problem_of_a_join(request: ConsumerHeartbeatRequest) -> str | None:
    if request.has_own_id and _is_blank(request.member_id):
        return "MemberId can't be empty."
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.owned is None or request.owned:
        return "TopicPartitions must be empty when (re-)joining."
    if not request.has_own_id and not request.subscribed_topic_names:
        return "SubscribedTopicNames must be set in first request."
    if request.has_own_id and not request.has_subscription:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return None


def _is_blank(text: str) -> bool:
    """Whether nothing is left of it without the characters that Java trims."""
    return not text.strip(_TRIMMED)


def check_room(group: ConsumerGroup, member_id: str, max_size: int) -> None:
    if len(group.members) >= max_size and member_id not in group.members:
        message = f"The consumer group has reached its maximum capacity of {max_size} members."
        raise RefusedError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)


def check_names(group: ConsumerGroup, member_id: str, topics: frozenset[str]) -> None:
    """Whether the group has room for the member's subscription. A group that is over the limit may shrink."""
    growth = group.named_growth(topics, member_id)
    if growth > 0 and group.topic_count + growth > MAX_NAMES_OF_GROUP:
        raise RefusedError(ErrorCode.GROUP_MAX_SIZE_REACHED, _TOO_MANY)


def check_regex(
    group: ConsumerGroup, member_id: str, regex: str, matched: Collection[str], may_describe: MayDescribe
) -> None:
    """The same for what the member's expression matches."""
    growth = _matched_growth(group, member_id, regex, len(matched))
    if growth <= 0 or group.topic_count + growth <= _most_topics(group, len(matched)):
        return
    describable = sum(map(may_describe, matched))
    growth += describable - len(matched)
    if growth > 0 and group.topic_count + growth > _most_topics(group, describable):
        raise RefusedError(ErrorCode.GROUP_MAX_SIZE_REACHED, _TOO_MANY)


def _most_topics(group: ConsumerGroup, count: int) -> int:
    """An expression may match all topics of a large cluster, and so may another one, for which an application exchanges
    it member by member. `count` is what the new one matches."""
    return max(MAX_NAMES_OF_GROUP, 2 * max((count, *map(len, group.matches.values()))))


def _matched_growth(group: ConsumerGroup, member_id: str, regex: str, count: int) -> int:
    """How many more topics are matched once the member has this expression, which matches `count` topics."""
    if regex in group.matches:
        return 0
    member = group.members.get(member_id)
    own = None if member is None else member.topic_regex
    is_sole = sum(each.topic_regex == own for each in group.members.values()) == 1
    return count - (len(group.matches.get(own or "", ())) if is_sole else 0)


def check_record(group: ConsumerGroup, member: ConsumerMember) -> None:
    """Whether the log can hold the member's record. The group would need it in the log, and could not go on."""
    if not has_record(group, member):
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, "The member's subscription and ids are too large.")


def has_record(group: ConsumerGroup, member: ConsumerMember) -> bool:
    limit = group.writer.max_record_bytes
    if member.most_record_bytes + MAX_CHARACTER_BYTES * len(group.group_id) <= limit:
        return True
    key = ConsumerGroupMemberMetadataKey(group.group_id, member.member_id)
    return encode_record(key, member.subscription()).size_bytes <= limit


def check_epoch(member: ConsumerMember, request: ConsumerHeartbeatRequest) -> None:
    """The previous epoch is valid for a member that may have missed an answer, if it owns nothing beyond its
    assignment."""
    if request.member_epoch == member.epoch:
        return
    missed_an_answer = request.member_epoch == member.previous_epoch < member.epoch
    if not missed_an_answer or request.owned is None or not _is_subset(request.owned, member.assigned):
        raise RefusedError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The member's epoch is {member.epoch}, not {request.member_epoch}: it must rejoin without partitions.",
        )


def find_member(group: ConsumerGroup, request: ConsumerHeartbeatRequest) -> ConsumerMember:
    """The sender, which must be a member already."""
    if request.instance_id is not None:
        current_id = group.static_members.get(request.instance_id)
        if current_id is not None and current_id != request.member_id:
            raise RefusedError(ErrorCode.FENCED_INSTANCE_ID, f"The instance id belongs to member {current_id}.")
        member = None if current_id is None else group.members.get(current_id)
    else:
        member = group.members.get(request.member_id)
    if member is None:
        raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, "The sender is not a member of the group.")
    return member


def released_predecessor(group: ConsumerGroup, request: ConsumerHeartbeatRequest) -> ConsumerMember | None:
    """The static member that a joining one replaces: it must have left for a restart, or be a classic one."""
    member = group.members.get(group.static_members.get(request.instance_id or "", ""))
    if member is not None and member.classic is None and member.epoch != LEAVE_STATIC_EPOCH:
        raise RefusedError(ErrorCode.UNRELEASED_INSTANCE_ID, f"Member {member.member_id} uses the instance id.")
    return member


def _is_subset(owned: Assignment, assigned: Assignment) -> bool:
    return all(numbers <= assigned.get(topic_id, set()) for topic_id, numbers in owned.items())


def leaves(request: ConsumerHeartbeatRequest) -> bool:
    return request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH)
