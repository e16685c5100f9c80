"""Subscriptions by regular expression (KIP-848): in RE2 syntax, as in Kafka, with its bound on the work of a match."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

CACHED_REGEXES = 16
"""RE2 may use 8 MB for each."""
MAX_REGEX_BYTES = 32_767  # a record key's string


class InvalidRegexError(Exception):
    """The text says why RE2 does not take the expression."""


def matching(regex: str, names: Iterable[str]) -> frozenset[str]:
    """The names that the expression matches as a whole. Raises InvalidRegexError."""
    compiled = _compiled(regex)
    return frozenset(name for name in names if compiled.fullmatch(name))


def check(regex: str) -> None:
    """Raises InvalidRegexError."""
    _compiled(regex)


@lru_cache(CACHED_REGEXES)
def _compiled(regex: str) -> Any:
    import re2  # noqa: PLC0415  # takes 2 MB, and few groups subscribe by regular expression

    options = re2.Options()
    options.log_errors = False
    try:
        if len(regex.encode()) > MAX_REGEX_BYTES:
            raise InvalidRegexError(f"it is longer than {MAX_REGEX_BYTES} bytes")
        return re2.compile(regex, options)
    except (re2.error, UnicodeEncodeError) as error:
        raise InvalidRegexError(_text(error)) from error


def _text(error: Exception) -> str:
    reason = error.args[0]
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
