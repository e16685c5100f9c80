"""The line protocol of a driver, for those in Python. Standard library only: each client has an environment of its own.

One JSON object a line. In: {"do": ACTION, …its arguments}. Out, in the same order: {"result": …}, {"error": NAME} with
the client's own name of what went wrong, or {"unsupported": WHY} when the client has no such feature. The end of the
input ends the driver. Keys, values and header values are base64 or null. Logs go to standard error.

    log_in          bootstrap security mechanism user password token
                    authority certificate key            PEM files, or null
                    trust_store key_store store_password PKCS12 files with the same, for Java
                                                     from now on so; a refusal is the error of this action
    create_topic    topic partitions configs{}
    delete_topic    topic
    add_partitions  topic partitions                 the new total
    partitions      topic                            → their number, or null if there is no such topic
    configs         topic names[]                    → {name: value}
    set_config      topic name value
    delete_records  topic partition offset           all before the offset
    produce         topic records[] acks codec idempotent transaction
                                                     → [[partition, offset], …] as the records; transaction: null, or
                                                     {"id": …, "end": "commit" or "abort"}
    open            topic records[] id timeout_ms    a transaction, which stays open → as produce
    finish          end                              the open transaction: "commit" or "abort"
    copy            source topic group id count end timeout_ms
                                                     consume, transform and produce in one transaction: `count` records
                                                     of source, read by the group → the number of records
    fetch           topic partition offset count timeout_ms max_bytes isolation
                                                     → up to `count` records, by position and without a group
    bounds          topic partition                  → [start, end]
    offset_at       topic partition timestamp        → offset or null
    join            group topics[] pattern session_timeout_ms instance_id assignor protocol
    poll            count timeout_ms assigned        until there are `count` records and `assigned` (or null) partitions
                                                     → {"records": […], "assigned": [[topic, partition], …]}
    commit                                           what was polled
    leave
    committed       group topic partition            → offset or null
    set_offset      group topic partition offset     commits without being a member
    describe_group  group                            → {"state": …, "members": number}
    groups          prefix                           → names
    delete_group    group

A record: {"partition", "offset", "timestamp", "key", "value", "headers": [[name, value], …]}; to be produced it has no
offset, and partition and timestamp may be null. What a client cannot know (headers in 2015) is left out.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any


class Unsupported(Exception):
    """The client has no such feature; the message says which."""


def serve(driver: Any) -> None:
    """Actions are the methods of `driver`; its `error_name` names what they raise."""
    # Standard output is for answers only; the prints of clients go to standard error.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        print(json.dumps(_answer(driver, json.loads(line))), file=answers, flush=True)


def _answer(driver: Any, request: dict[str, Any]) -> dict[str, Any]:
    try:
        action = getattr(driver, request.pop("do"), None)
        if action is None:
            return {"unsupported": "the client has no such call"}
        return {"result": action(**request)}
    except Unsupported as why:
        return {"unsupported": str(why)}
    except Exception as error:
        print(repr(error), file=sys.stderr, flush=True)
        return {"error": driver.error_name(error)}


def encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
