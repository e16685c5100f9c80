"""Clients' regular expressions (KIP-848, KIP-1152): in RE2 syntax, as in Kafka, with bounds on their size.

google-re2 holds the interpreter's lock while it compiles, in a thread, too. With these bounds that takes some 6 ms for
the worst expressions that we know, instead of 630 ms. It releases the lock while it matches.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

MAX_REGEX_BYTES = 2_048
"""Kafka's only limit is the size of a request."""
MAX_UNICODE_CLASSES = 16
r"""Such as \pL: a few hundred ranges each, which take longer to compile than hundreds of other characters."""
MAX_COMPILED_BYTES = 256 * 1024
"""RE2's limit for an expression: it refuses larger ones, and matches with less speed where its states do not fit."""
CACHED_REGEXES = 64
"""Compiled expressions that are kept, of MAX_COMPILED_BYTES each."""
CACHED_VERDICTS = 1_000
"""Expressions of which is remembered whether they are valid."""

Matches = Callable[[str], bool]
"""Whether an expression matches a name as a whole."""

_UNICODE_CLASS = re.compile(r"\\[pP]")


class InvalidRegexError(Exception):
    """The text says why the expression is refused."""


def matching(regex: str, names: Iterable[str]) -> frozenset[str]:
    """The names that the expression matches as a whole. Raises InvalidRegexError."""
    return frozenset(filter(matcher(regex), names))


def matcher(regex: str) -> Matches:
    """Raises InvalidRegexError."""
    problem = problem_of(regex)
    if problem is not None:
        raise InvalidRegexError(problem)
    import re2  # noqa: PLC0415  # takes 2 MB, and few groups subscribe by regular expression

    match, whole = _compiled(regex)._regexp.Match, re2._Anchor.ANCHOR_BOTH

    def is_match(name: str) -> bool:  # `fullmatch` does the same in seven times the time
        text = name.encode()
        start, _end = match(whole, text, 0, len(text))[0]
        return start >= 0  # type: ignore[no-any-return]

    return is_match


def problem_of(regex: str) -> str | None:
    """Why the expression is refused."""
    if len(regex) > MAX_REGEX_BYTES or len(regex.encode(errors="surrogatepass")) > MAX_REGEX_BYTES:
        return f"it is longer than {MAX_REGEX_BYTES} bytes"
    return _verdict(regex)


@lru_cache(CACHED_VERDICTS)
def _verdict(regex: str) -> str | None:
    import re2  # noqa: PLC0415

    if len(_UNICODE_CLASS.findall(regex)) > MAX_UNICODE_CLASSES:
        return rf"it has more than {MAX_UNICODE_CLASSES} Unicode classes such as \pL"
    try:
        _compiled(regex)
    except (re2.error, UnicodeEncodeError) as error:
        return _text(error)
    return None


@lru_cache(CACHED_REGEXES)
def _compiled(regex: str) -> Any:
    """Not by `re2.compile`, which keeps 128 expressions of its own."""
    import re2  # noqa: PLC0415

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_COMPILED_BYTES
    options.never_capture = True  # only whole names count, so RE2 need not find where groups match
    return re2._Regexp(regex, options)


def _text(error: Exception) -> str:
    reason = error.args[0]
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
