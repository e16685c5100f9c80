"""Names that no other test uses, so that tests on the same servers do not affect each other."""

import uuid


def unique_topic(prefix: str = "t") -> str:
    return f"{prefix}-{uuid.uuid4().hex[:12]}"
