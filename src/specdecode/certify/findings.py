"""What tests find, as frozen values: a Finding each, and the Certificate that holds them. Knows no test, no model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

PASS, FAIL, NOT_PROMISED, NOT_APPLICABLE = "pass", "FAIL", "not promised", "not applicable"


Tick = Callable[[str], None]  # told what has been done, once for each unit of work


@dataclass(frozen=True)
class Finding:
    """One test's outcome. found, limit: what was measured and what it may be, in words; reason: why the test did not
    apply, or what its outcome rests on; figures: the numbers, ready for JSON."""

    test: str
    outcome: str
    found: str = ""
    limit: str = ""
    reason: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, test: str, passed: bool, found: str, limit: str, **figures: Any) -> Finding:
        return cls(test, PASS if passed else FAIL, found, limit, figures=figures)

    @classmethod
    def not_applicable(cls, test: str, reason: str) -> Finding:
        return cls(test, NOT_APPLICABLE, reason=reason)

    def without_promise(self, rule: str) -> Finding:
        """The same numbers under a relaxed rule, which promises nothing of the kind: they cannot fail."""
        return replace(self, outcome=NOT_PROMISED, reason=f"rule {rule!r} is relaxed")


@dataclass(frozen=True)
class Certificate:
    """findings: one a test. about: what was tested, how much of it and where, ready for JSON."""

    findings: tuple[Finding, ...]
    about: Mapping[str, Any]

    @property
    def passed(self) -> bool:
        """Whether no test failed, and at least one of them applied."""
        outcomes = {finding.outcome for finding in self.findings}
        return FAIL not in outcomes and outcomes != {NOT_APPLICABLE}

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {"passed": self.passed, **self.about, "tests": [asdict(finding) for finding in self.findings]}
