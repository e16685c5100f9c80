"""The cases: functions of a lab, whose result must be the same on both sides. Docstrings are the rows of the report."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.clients.lab import Lab

Trial = Callable[[Lab], Any]


@dataclass(frozen=True)
class Case:
    feature: str
    name: str
    title: str
    trial: Trial


def all_cases() -> list[Case]:
    """All cases, in the order of FEATURES, and of the lines in each module."""
    return [case for module in FEATURES for case in _cases_of(module)]


def _cases_of(module_name: str) -> list[Case]:
    module = importlib.import_module(f"{__name__}.{module_name}")
    own = (each for name, each in vars(module).items() if not name.startswith("_"))
    trials = [each for each in own if getattr(each, "__module__", None) == module.__name__]
    return [Case(module.FEATURE, trial.__name__, (trial.__doc__ or "").strip(), trial) for trial in trials]


FEATURES = (
    "topics",
    "producing",
    "compression",
    "fetching",
    "timestamps",
    "groups",
    "rebalances",
    "idempotence",
    "transactions",
    "errors",
    "logins",
)
assert {module.name for module in pkgutil.iter_modules(__path__)} == set(FEATURES)
