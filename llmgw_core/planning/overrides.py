"""What an operator may take upon himself, and all findings of a plan judged by it. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.launch import LaunchPlan, LaunchRequest

# Policy, not impossibility.
OVERRIDABLE = frozenset(
    {
        "fp8-capability",
        "fp8-kv-capability",
        "quantization-capability",
        "dtype-capability",
        "mixed-classes",
        "gpu-unfit",
        "not-fenced",
        "gpu-memory-short",
        "gpu-memory-uneven",
        "heads-split",
        "kv-heads-split",
        "layers-split",
        "width-split",
        "model-differs",
        "model-fit",
        "model-len-above",
        "model-torn",
        "quantization-differs",
        "weights-missing",
        "args-unknown",
        "args-abbreviated",
        "value-unknown",
        # What hangs launches mostly; somebody may know better.
        "boot-interface",
        "efa-plugin",
        "env-conflict",
        "gid-roce",
        "hostname-loopback",
        "memlock",
        "mtu",
        "pkey",
        "port-active",
        "roce-subnet",
        "shm",
        "tcp-reach",
        "uverbs-access",
        "verbs-userland",
    }
)
_UNUSED = "override-unused"


def apply_overrides(request: LaunchRequest, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings, errors first, those that the operator overrides turned into warnings that say so."""
    found = list(findings)
    known = {finding.code for finding in found}
    judged = [_override(finding, request.overrides) for finding in found]
    judged += [
        Finding(
            _UNUSED,
            Severity.WARNING,
            "overrides",
            f"{code} was not found, or cannot be overridden",
            f"codes that can: {', '.join(sorted(OVERRIDABLE))}",
        )
        for code in request.overrides
        if code not in known or code not in OVERRIDABLE
    ]
    order = list(Severity)
    return tuple(sorted(judged, key=lambda finding: order.index(finding.severity)))


def add_findings(plan: LaunchPlan, found: Iterable[Finding]) -> LaunchPlan:
    """The plan with what was found later, all of it judged together. What both tell of one thing is told once."""
    told = [finding for finding in plan.findings if finding.code != _UNUSED]
    known = {_identity(finding) for finding in told}
    fresh = [finding for finding in found if _identity(finding) not in known]
    return replace(plan, findings=apply_overrides(plan.request, [*told, *fresh]))


def _identity(finding: Finding) -> tuple[str, str | None, str]:
    """Code, node and thing: a planner's subject begins with the node's name, the node's own does not."""
    return finding.code, finding.node, finding.subject.removeprefix(f"{finding.node} ")


def _override(finding: Finding, overrides: Sequence[str]) -> Finding:
    if finding.severity is not Severity.ERROR or finding.code not in OVERRIDABLE.intersection(
        overrides
    ):
        return finding
    return replace(finding, severity=Severity.WARNING, what=f"{finding.what} (overridden)")
