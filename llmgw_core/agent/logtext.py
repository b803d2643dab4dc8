"""What engines put around a line of their log, taken off. Pure."""

import re

_ANSI = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)
# (EngineCore_DP0 pid=4102) · (RayWorkerWrapper pid=41, ip=10.0.0.2)
_PROCESS = re.compile(r"^\([\w.:-]+ pid=\d+(?:, ip=[\d.]+)?\) ?")
# ERROR 12-01 02:30:45 [core.py:1510]
_VLLM_LEVEL = re.compile(r"^(?:[A-Z]+) \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \[[^\]]*\] ?")
# [2026-12-01 02:30:45 DP0 TP3]
_SGLANG_TIME = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?(?: [A-Z]+\d+)*\] ?")


def strip_escapes(text: str) -> str:
    """The text without what a terminal would obey. Source: ECMA-48 5.4, 8.3.89."""
    return _ANSI.sub("", text)


def strip_prefix(line: str) -> str:
    """The line's own message: no colours, no process, no level, no time.

    Line: `(EngineCore pid=4102) ERROR 12-01 02:30:45 [core.py:1510] ValueError: No available memory …`.
    """
    text = strip_escapes(line)
    for prefix in (_PROCESS, _VLLM_LEVEL, _SGLANG_TIME):
        text = prefix.sub("", text, count=1)
    return text
