"""Why a launch would not take a GPU, or an engine not use a port: in words, with what was seen. Pure."""

from llmgw_core.domain.findings import Severity
from llmgw_core.domain.hardware import Gpu, Port
from llmgw_core.domain.inventory import NodeView
from llmgw_tui.present.detail import fact
from llmgw_tui.present.text import Line, Tone, line, span


def gpu_verdict(view: NodeView, gpu: Gpu) -> tuple[Line, ...]:
    """Whether a launch would take the GPU, and each reason why not. What its health flags say in words comes after."""
    if not view.node.reachable:
        text = f"{view.node.name} does not answer: what is shown is the last known"
        return (line(span(f"◌ {text}", Tone.WARN)),)
    if gpu.available:
        return (line(span("free: a launch would take it", Tone.OK)),)
    reasons = []
    if gpu.engine is not None:
        reasons.append(f"engine {gpu.engine} holds it")
    errors = [flag.code for flag in gpu.health if flag.severity is Severity.ERROR]
    if errors:
        reasons.append(f"its health forbids it: {', '.join(errors)}")
    if not reasons:
        reasons.append("its driver told too little of it to judge")
    return tuple(line(span(f"not available: {reason}", Tone.WARN)) for reason in reasons)


def port_verdict(port: Port) -> tuple[Line, ...]:
    """Whether engines on several nodes would use the port, and why not; what speaks against it without deciding."""
    lines = []
    if port.excluded is not None:
        note = port.excluded
        lines.append(
            fact(
                "engines",
                span(f"▲ do not use it: {note.reason}", Tone.WARN),
                span(f"  [{note.code}]", Tone.DIM),
            )
        )
    elif port.usable:
        lines.append(fact("engines", span("use it: it is in NCCL_IB_HCA", Tone.OK)))
    if port.suspect is not None:
        note = port.suspect
        lines.append(fact("hint", span(note.reason, Tone.WARN), span(f"  [{note.code}]", Tone.DIM)))
    if port.uverbs_access not in (None, "ok"):
        text = f"▲ {port.uverbs or 'its device'} cannot be opened: {port.uverbs_access}"
        lines.append(fact("access", span(text, Tone.WARN)))
    if port.unread:
        lines.append(fact("unread", span(", ".join(port.unread), Tone.DIM)))
    return tuple(lines)
