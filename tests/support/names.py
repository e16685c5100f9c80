"""Names that no other test uses: every test has the servers to itself as far as it can see."""

import uuid


def unique_topic(prefix: str = "t") -> str:
    return f"{prefix}-{uuid.uuid4().hex[:12]}"
