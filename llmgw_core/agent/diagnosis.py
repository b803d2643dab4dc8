"""Why an engine failed, read from its log: the deepest first cause, not the wrappers above it. Pure.

An engine's last line is nearly always `Engine core initialization failed. See root cause above.` or the noise of Python
ending; a worker's reason stands once, under the tracebacks of three processes. So the whole text is searched, a deep
cause outweighs a shallow one, and among equals the first one counts.
"""

import re
from typing import List, Optional, Tuple

from llmgw_core.agent.diagnosis_rule import Rule
from llmgw_core.agent.diagnosis_rules import RULES, WRAPPERS
from llmgw_core.agent.logtext import strip_prefix
from llmgw_core.domain.engine import Diagnosis, EngineExit

MAX_MESSAGE_CHARS = 400
MAX_LINE_CHARS = 4000
MAX_END_LINES = 1000
_SUSPECT = re.compile(
    r"[Ee]rror|ERROR|[Ee]xception|WARN|[Ff]ail|[Tt]imeout|[Tt]imed out|No such|denied|Illegal|died|out of memory|Killed|Xid|not fully covered"
    r"|must be executed|is not |cannot|can't|Couldn't|Could not|NUMA|KeyboardInterrupt|is installed with version",
    re.ASCII,
)
# (APIServer pid=7) WARNING 12-01 02:30:45 [utils.py:9] … errors like `OSError: [Errno 24] Too many open files`. …
# What an engine itself calls a warning did not end it.
_HARMLESS = re.compile(
    r"(?:^|\) |m ?)(?:DEBUG|INFO|WARNING) \d\d-\d\d \d\d:\d\d:\d\d|^(?:INFO|WARNING|DEBUG): "
)
# torch.OutOfMemoryError: … · huggingface_hub.errors.RepositoryNotFoundError: …
_ERROR_LINE = re.compile(r"(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Interrupt)\b:? ?(?P<text>.*)")
_PLAIN_ERROR = re.compile(r"^(?:.{0,60}: )?(?:error|fatal|ERROR|FATAL)\b[:\] ]+(?P<text>\S.*)")
_PYDANTIC_TAIL = re.compile(r" ?\[type=\w+, input_value=.*$")
READ_LOG = "read the log: llmgw logs <engine>"


def diagnose(text: str, ended: EngineExit, was_ready: bool, detail: str = "") -> Diagnosis:
    """The cause of a failure. Always one: the last error-like line, or how it ended, when nothing is known by name.

    Args:
        text: the log, or its first and last megabytes.
        ended: how the leader ended.
        was_ready: whether it had been ready; dying later with code 0 is vLLM's way.
        detail: what the shim said when there is no log to read, e.g. why it could not be executed.
    """
    if ended.reason == "exec-failed":
        return Diagnosis("exec-failed", detail or "the command could not be executed", _EXEC_HINT)
    if ended.reason == "host-rebooted":
        return _REBOOTED
    if ended.reason == "oom":
        return _HOST_OOM
    lines = suspect_lines(text)
    known = find_cause(lines)
    if known is not None:
        return known
    last = "" if ended.signal == _SIGKILL else _last_error(lines)
    if last:
        return Diagnosis("error", last, READ_LOG)
    return _describe_end(ended, was_ready)


def suspect_lines(text: str) -> List[str]:
    """The lines that may say what went wrong, without prefixes and tails, each once, in order.

    At most the first and the last 1000, so that a log storm costs no more than a moment.
    """
    seen = {
        _PYDANTIC_TAIL.sub("", strip_prefix(line[:MAX_LINE_CHARS])).strip(): None
        for line in re.split(r"[\r\n]+", text)
        if _SUSPECT.search(line, 0, MAX_LINE_CHARS)
        and not _HARMLESS.search(line, 0, MAX_LINE_CHARS)
    }
    lines = [line for line in seen if line]
    if len(lines) > 2 * MAX_END_LINES:
        return lines[:MAX_END_LINES] + lines[-MAX_END_LINES:]
    return lines


def find_cause(lines: List[str]) -> Optional[Diagnosis]:
    """The deepest cause known by name; the first among equally deep ones. None: no rule fits."""
    best: Optional[Tuple[int, Rule, str]] = None
    for line in lines:
        for rule in RULES:
            if best is not None and rule.depth >= best[0]:
                continue
            match = rule.pattern.search(line)
            if match is not None:
                best = (rule.depth, rule, _message(rule, line, match.groupdict().get("text")))
                break
    if best is None:
        return None
    return Diagnosis(best[1].code, best[2], best[1].hint)


def _message(rule: Rule, line: str, told: Optional[str]) -> str:
    text = told or line
    error = _ERROR_LINE.search(text)
    if error is not None and error.group("text"):
        text = error.group("text")
    text = text.removeprefix("Value error, ")
    return _clamp(f"{rule.summary}: {text}" if rule.summary else text)


def _last_error(lines: List[str]) -> str:
    for line in reversed(lines):
        if WRAPPERS.search(line):
            continue
        if _ERROR_LINE.match(line) or _PLAIN_ERROR.match(line) or line.startswith("Value error, "):
            return _clamp(line.replace("Value error, ", "", 1))
    return ""


def _clamp(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE_CHARS else text[: MAX_MESSAGE_CHARS - 1] + "…"


def _describe_end(ended: EngineExit, was_ready: bool) -> Diagnosis:
    if ended.signal == _SIGKILL:
        return Diagnosis(
            "killed",
            "it was killed by SIGKILL, and llmgw did not send it",
            "look for the kernel's memory killer: dmesg -T | grep -i 'out of memory'; else somebody killed it",
        )
    if ended.signal is not None:
        return Diagnosis("killed", f"it died by signal {ended.signal}", READ_LOG)
    if ended.code == 0:
        when = "after it had been ready" if was_ready else "before it was ready"
        return Diagnosis(
            "exited",
            f"it ended by itself with exit code 0 {when}",
            f"an engine whose core or worker died ends so; {READ_LOG}",
        )
    if ended.code is not None:
        return Diagnosis("exited", f"it ended by itself with exit code {ended.code}", READ_LOG)
    return Diagnosis("unknown", "it is gone, and nobody was there to see how it ended", READ_LOG)


_SIGKILL = 9
_EXEC_HINT = "check the engine's path and virtual environment on this node"
_REBOOTED = Diagnosis(
    "host-rebooted", "the node was rebooted while it ran", "launch it again with a new plan"
)
_HOST_OOM = Diagnosis(
    "host-oom",
    "the kernel killed it because the node ran out of memory",
    "free host memory, or load with less of it: fewer loader threads, no CPU offload",
)
