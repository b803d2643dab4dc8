"""All that engines print when they fail, deepest causes first: the table behind `diagnosis`. Pure."""

import re
from typing import Tuple

from llmgw_core.agent.diagnosis_node import GPU, NETWORK, SOFTWARE
from llmgw_core.agent.diagnosis_request import MODEL, REQUEST
from llmgw_core.agent.diagnosis_rule import Rule

# Lines that only say that something else failed.
WRAPPERS = re.compile(
    r"Engine core initialization failed|WorkerProc initialization failed|See (?:root cause|stack trace)"
    r"|Failed core proc|resource_tracker|nanobind|SystemExit|EngineDeadError|EngineCore encountered"
    r"|EngineCore failed to start|WorkerProc hit an exception|WorkerProc failed to start|Process \w+:$"
    r"|Received sigquit from a child|validation errors? for |KeyboardInterrupt|^Traceback|BrokenPipeError"
)

RULES: Tuple[Rule, ...] = tuple(
    sorted((*GPU, *MODEL, *REQUEST, *NETWORK, *SOFTWARE), key=lambda rule: rule.depth)
)
