"""Maps the name in a client certificate to the name of a principal: Kafka's `ssl.principal.mapping.rules`.

Rules are tried in their order; the first rule that matches the whole name is used:

    DEFAULT                            the name as it is
    RULE:pattern/replacement/[L|U]     $1 in the replacement is the pattern's first group; L and U change the case

Commas separate rules. A slash within a pattern or a replacement is escaped with a backslash.
"""

from __future__ import annotations

import re
from typing import NamedTuple

DEFAULT_RULES = "DEFAULT"
_RULE = re.compile(r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_SEPARATOR = re.compile(r"\s*(?:,\s*|$)")
_REFERENCE = re.compile(r"\\(.)|\$(\d+)")


class MalformedRule(ValueError):
    """A rule has an invalid form."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    """None matches every name, which is not changed."""
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        replaced = self.pattern.sub(self._replaced, name)
        return replaced.lower() if self.case == "L" else replaced.upper() if self.case == "U" else replaced

    def _replaced(self, found: re.Match[str]) -> str:
        def part(reference: re.Match[str]) -> str:
            if reference[1] is not None:
                return reference[1]
            # As in Java: with one group, $12 is that group followed by a 2, and $9 is not a reference.
            digits = reference[2]
            for end in range(len(digits), 0, -1):
                number = int(digits[:end])
                if number <= found.re.groups:
                    return (found[number] or "") + digits[end:]
            return reference[0]

        return _REFERENCE.sub(part, self.replacement)


class PrincipalRules:
    def __init__(self, rules: list[_Rule]) -> None:
        self._rules = rules

    def name(self, distinguished_name: str) -> str | None:
        """None if no rule matches: the certificate has no principal."""
        names = (rule.apply(distinguished_name) for rule in self._rules)
        return next((name for name in names if name is not None), None)


def parse_rules(text: str) -> PrincipalRules:
    """Raises MalformedRule."""
    rules: list[_Rule] = []
    text, position = text.strip(), 0
    while position < len(text):
        found = _RULE.match(text, position)
        end = None if found is None else _SEPARATOR.match(text, found.end())
        if found is None or end is None:
            raise MalformedRule(
                f"principal_rules: {text[position:]} is not DEFAULT, nor RULE:pattern/replacement/[LU]"
            )
        rules.append(_rule(found))
        position = end.end()
    if not rules:
        raise MalformedRule("principal_rules: there is no rule")
    return PrincipalRules(rules)


def _rule(found: re.Match[str]) -> _Rule:
    if found[1]:
        return _Rule(None, "", "")
    try:
        return _Rule(re.compile(found[2]), found[3], found[4])
    except re.error as error:
        raise MalformedRule(f"principal_rules: {found[2]}: {error}") from None
