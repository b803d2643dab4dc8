"""What a validation found: values, not exceptions, so that all are shown at once."""

from dataclasses import dataclass
from enum import Enum
from typing import Iterable, Optional

from llmgw_core.domain.strict import STRICT


class Severity(str, Enum):
    """How much a finding weighs: an error stops a launch, a warning asks, info tells."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True)
class Finding:
    """One thing wrong, or worth a word, with a request, a plan or a node."""

    __pydantic_config__ = STRICT

    code: str  # stable, e.g. "port-taken"; what --override names
    severity: Severity
    subject: str  # the node, GPU or field, e.g. "n07 GPU 3", "tensor_parallel"
    what: str  # is wrong
    fix: str = ""  # what to do
    node: Optional[str] = None
    why: str = ""  # the evidence, where `what` alone does not say it


def has_errors(findings: Iterable[Finding]) -> bool:
    """Whether any of them stops a launch."""
    return any(finding.severity is Severity.ERROR for finding in findings)
