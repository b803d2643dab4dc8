"""What travels between the feed and the screens: snapshots and results upwards, commands downwards."""

from textual.message import Message

from llmgw_core.domain.engine import EngineStatus, LogChunk
from llmgw_core.domain.inventory import FleetSnapshot
from llmgw_core.domain.launch import LaunchPlan, LaunchRequest
from llmgw_core.domain.queue import GatewaysPicture
from llmgw_core.errors import LlmgwError


class SnapshotArrived(Message):
    """A new picture of the fleet. A later one replaces an earlier one still waiting."""

    def __init__(self, snapshot: FleetSnapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    def can_replace(self, message: Message) -> bool:
        """Whether this stands for the other too."""
        return isinstance(message, SnapshotArrived)


class RefreshRequested(Message):
    """Read the nodes again now."""


class CommandGiven(Message):
    """A command of the table was chosen, with a word for each of its arguments; empty for one left out."""

    def __init__(self, name: str, words: tuple[str, ...]) -> None:
        super().__init__()
        self.name = name
        self.words = words


class CommandWanted(Message):
    """The operator pressed `:`; the line holds `begin` at first."""

    def __init__(self, begin: str = "") -> None:
        super().__init__()
        self.begin = begin


class PlanRequested(Message):
    """Plan this launch. The number comes back with the answer: only the latest counts."""

    def __init__(self, number: int, request: LaunchRequest) -> None:
        super().__init__()
        self.number = number
        self.request = request


class PlanArrived(Message):
    """The plan of a request, or the reason why there is none."""

    def __init__(
        self, number: int, plan: LaunchPlan | None, error: LlmgwError | None = None
    ) -> None:
        super().__init__()
        self.number = number
        self.plan = plan
        self.error = error


class LaunchRequested(Message):
    """Carry out this plan: the very one that was shown."""

    def __init__(self, plan: LaunchPlan) -> None:
        super().__init__()
        self.plan = plan


class LaunchSucceeded(Message):
    """The node started the engine; it begins to load."""

    def __init__(self, plan: LaunchPlan, engines: tuple[EngineStatus, ...]) -> None:
        super().__init__()
        self.plan = plan
        self.engines = engines


class LaunchFailed(Message):
    """The node refused the engine, or could not be asked."""

    def __init__(self, plan: LaunchPlan, error: LlmgwError) -> None:
        super().__init__()
        self.plan = plan
        self.error = error


class ActRequested(Message):
    """Do this to these engines: each by (node, engine id), never by a row.

    `act` is one of "stop", "restart", "forget"; a restart is of one engine, whose ranks these are.
    """

    def __init__(self, act: str, targets: tuple[tuple[str, ...], ...]) -> None:
        super().__init__()
        self.act = act
        self.targets = targets


class ActAccepted(Message):
    """The node has begun with it, or done it; `said` tells a person so."""

    def __init__(self, act: str, said: str) -> None:
        super().__init__()
        self.act = act
        self.said = said


class ActionFailed(Message):
    """Something the operator asked for did not happen."""

    def __init__(self, action: str, error: LlmgwError) -> None:
        super().__init__()
        self.action = action
        self.error = error


class LogWanted(Message):
    """Follow the log of this engine and of no other; None: of none. Offset None: from near its end."""

    def __init__(self, node: str | None, engine_id: str | None, offset: int | None = None) -> None:
        super().__init__()
        self.offset = offset
        self.node = node
        self.engine_id = engine_id


class LogArrived(Message):
    """A piece of the log of the engine that is followed."""

    def __init__(self, node: str, chunk: LogChunk) -> None:
        super().__init__()
        self.node = node
        self.chunk = chunk


class LogInterrupted(Message):
    """The log cannot be read now; it is tried again."""

    def __init__(self, node: str, engine_id: str, error: LlmgwError) -> None:
        super().__init__()
        self.node = node
        self.engine_id = engine_id
        self.error = error


class GatewaysWanted(Message):
    """Follow the gateways' queues, or no longer: the view that shows them came or went."""

    def __init__(self, wanted: bool) -> None:
        super().__init__()
        self.wanted = wanted


class GatewaysArrived(Message):
    """A new picture of the gateways. A later one replaces an earlier one still waiting."""

    def __init__(self, picture: GatewaysPicture) -> None:
        super().__init__()
        self.picture = picture

    def can_replace(self, message: Message) -> bool:
        """Whether this stands for the other too."""
        return isinstance(message, GatewaysArrived)


class SteerRequested(Message):
    """Pause, resume or drain at a gateway, of which `node` and `socket` tell which. `kind` is model, tenant or engine."""

    def __init__(self, verb: str, node: str, socket: str, kind: str, name: str) -> None:
        super().__init__()
        self.verb = verb
        self.node = node
        self.socket = socket
        self.kind = kind
        self.name = name
