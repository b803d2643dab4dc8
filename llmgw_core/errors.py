"""The tree of errors: each says what happened, why (the evidence), and what to do next.

    LlmgwError                    code               exit
    ├── UsageError                usage              2    the command line or a file the operator wrote
    │   ├── ConfigError           config                  cluster.toml
    │   └── SpecError             spec                    a launch spec: file, line, key, what is allowed
    ├── PlanRefused               plan-refused       5    findings of severity error
    ├── NodeError                 node               6    one node; the others go on
    │   ├── Unreachable           unreachable             no connection
    │   │   ├── NameUnresolved    dns
    │   │   ├── ConnectRefused    refused
    │   │   ├── ConnectTimeout    timeout
    │   │   ├── LoginCut          login-cut               before login; another try may do
    │   │   ├── ConnectionDropped dropped                 it was there, and went
    │   │   ├── HostKeyUnknown    host-key-unknown
    │   │   ├── HostKeyChanged    host-key-changed
    │   │   └── AuthRefused       auth
    │   ├── BootstrapFailed       bootstrap               it answers, but the agent cannot run there
    │   │   ├── NoPython          no-python
    │   │   ├── HomeUnwritable    home-unwritable
    │   │   └── DiskFull          disk-full
    │   ├── ProtocolError         protocol                torn, hostile, or of another version
    │   └── AgentTimeout          agent-timeout
    ├── LaunchError               launch             7    the node refused or could not start an engine
    │   ├── NameTaken             name-taken
    │   ├── PortTaken             port-taken
    │   ├── GpuTaken              gpu-taken
    │   ├── ModelMissing          model-missing
    │   └── ExecutableMissing     executable-missing
    ├── EngineNotFound            engine-not-found   8
    ├── StopIncomplete            stuck              9    something is left; names who holds what
    └── GatewayError              gateway            10   the gateway cannot start, or does not answer

``code`` is stable and is what programs branch on; ``exit_code`` is what a command that ends by the error returns.
Codes 3 and 4 (some, no nodes answered) belong to the inventory, 1 to an error of llmgw itself, 130 to an interrupt.
"""

from typing import Any, ClassVar, Dict, Optional, Type


class LlmgwError(Exception):
    """An error a person can act on.

    Args:
        what: the object and the fact, e.g. ``n07 GPU 3 is not free``.
        why: the evidence seen, e.g. ``pid 4711 (python3) holds 61440 MiB``.
        fix: a command or a choice the operator has.
        node: name of the node it happened on; None when it is no node's.
    """

    code: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, why: str = "", fix: str = "", node: Optional[str] = None) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix
        self.node = node

    @property
    def message(self) -> str:
        """What happened and why, in one line, without the node."""
        return f"{self.what}: {self.why}" if self.why else self.what

    def __str__(self) -> str:
        where = f"{self.node}: " if self.node else ""
        todo = f" ({self.fix})" if self.fix else ""
        return f"{where}{self.message}{todo}"

    def to_wire(self) -> Dict[str, Optional[str]]:
        """The error as it crosses a connection; `from_wire` is its inverse."""
        return {
            "code": self.code,
            "what": self.what,
            "why": self.why,
            "fix": self.fix,
            "node": self.node,
        }


def from_wire(data: Dict[str, Any]) -> LlmgwError:
    """Rebuild an error from `LlmgwError.to_wire`; a code nobody knows becomes a NodeError that keeps its text."""
    cls = _by_code().get(str(data.get("code")), NodeError)
    node = data.get("node")
    return cls(
        str(data.get("what", "the node reported an error")),
        str(data.get("why") or ""),
        str(data.get("fix") or ""),
        None if node is None else str(node),
    )


def _by_code() -> Dict[str, Type[LlmgwError]]:
    found: Dict[str, Type[LlmgwError]] = {}
    waiting = [LlmgwError]
    while waiting:
        cls = waiting.pop()
        found[cls.code] = cls
        waiting.extend(cls.__subclasses__())
    return found


class UsageError(LlmgwError):
    """The operator's words or files cannot be followed as they stand."""

    code = "usage"
    exit_code = 2


class ConfigError(UsageError):
    """cluster.toml: names the file, the key, and what is allowed."""

    code = "config"


class SpecError(UsageError):
    """A launch spec: names the file, the line, the key, and what is allowed."""

    code = "spec"


class PlanRefused(LlmgwError):
    """The plan has findings of severity error; they are printed one by one."""

    code = "plan-refused"
    exit_code = 5


class NodeError(LlmgwError):
    """Something about one node. It never stops another node's work."""

    code = "node"
    exit_code = 6


class Unreachable(NodeError):
    """No connection: the node may be well and its engines serving. Never read it as dead."""

    code = "unreachable"


class NameUnresolved(Unreachable):
    """The address does not resolve."""

    code = "dns"


class ConnectRefused(Unreachable):
    """Nothing listens on the port, or no route."""

    code = "refused"


class ConnectTimeout(Unreachable):
    """No answer in time."""

    code = "timeout"


class LoginCut(Unreachable):
    """Cut before login, as a full sshd (MaxStartups) does at random: another try may do."""

    code = "login-cut"


class ConnectionDropped(Unreachable):
    """The connection was there and went."""

    code = "dropped"


class HostKeyUnknown(Unreachable):
    """The node's host key is in no known_hosts file."""

    code = "host-key-unknown"


class HostKeyChanged(Unreachable):
    """The node's host key differs from the recorded one. Never offers to accept it."""

    code = "host-key-changed"


class AuthRefused(Unreachable):
    """No way to log in is left."""

    code = "auth"


class BootstrapFailed(NodeError):
    """The node answers, but the agent cannot be put or started there."""

    code = "bootstrap"


class NoPython(BootstrapFailed):
    """No Python 3.9 or newer was found."""

    code = "no-python"


class HomeUnwritable(BootstrapFailed):
    """No directory to write the agent to."""

    code = "home-unwritable"


class DiskFull(BootstrapFailed):
    """No space left on the node."""

    code = "disk-full"


class ProtocolError(NodeError):
    """A message is torn, hostile, or of a version nobody here speaks."""

    code = "protocol"


class AgentTimeout(NodeError):
    """The agent did not answer a request in time."""

    code = "agent-timeout"


class LaunchError(LlmgwError):
    """The node refused to start an engine, or could not."""

    code = "launch"
    exit_code = 7


class NameTaken(LaunchError):
    """Another engine of that name lives on the node."""

    code = "name-taken"


class PortTaken(LaunchError):
    """The port is bound by somebody."""

    code = "port-taken"


class GpuTaken(LaunchError):
    """A GPU of the plan is held by another engine."""

    code = "gpu-taken"


class ModelMissing(LaunchError):
    """The model path does not exist on the node."""

    code = "model-missing"


class ExecutableMissing(LaunchError):
    """The engine's command is not on the node."""

    code = "executable-missing"


class EngineNotFound(LlmgwError):
    """No engine of that id or name."""

    code = "engine-not-found"
    exit_code = 8


class StopIncomplete(LlmgwError):
    """A stop left something behind; says who holds what."""

    code = "stuck"
    exit_code = 9


class GatewayError(LlmgwError):
    """The gateway cannot do what it was asked to. Those of admission stand in `llmgw_core/admission/tickets.py`."""

    code = "gateway"
    exit_code = 10
