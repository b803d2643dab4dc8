"""The numbered views and what each shows."""

from llmgw_tui.present import engines, fabric, gpus, nodes, processes
from llmgw_tui.present.commands import make_commands
from llmgw_tui.present.events import COLUMNS as EVENT_COLUMNS
from llmgw_tui.present.events import EventBook
from llmgw_tui.widgets.master_detail import ShowDetail, ViewSpec

CLUSTER = ViewSpec("cluster", "Cluster", nodes.COLUMNS, nodes.rows, nodes.detail, nodes.empty)
GPUS = ViewSpec("gpus", "GPUs", gpus.COLUMNS, gpus.rows, gpus.detail, gpus.empty)
FABRIC = ViewSpec("fabric", "Fabric", fabric.COLUMNS, fabric.rows, fabric.detail, fabric.empty)
PROCESSES = ViewSpec(
    "processes",
    "Processes",
    processes.COLUMNS,
    processes.rows,
    processes.detail,
    processes.empty,
)
ENGINES_ID = "engines"
LOG_ID = "log"
EVENTS_ID = "events"
QUEUE_ID = "queue"
IDS = (CLUSTER.id, GPUS.id, FABRIC.id, ENGINES_ID, LOG_ID, PROCESSES.id, EVENTS_ID, QUEUE_ID)
TITLES = ("Cluster", "GPUs", "Fabric", "Engines", "Log", "Processes", "Events", "Queue")
COMMANDS = make_commands(IDS)


def engines_spec(detail: ShowDetail) -> ViewSpec:
    """The engine view; its detail quotes the log that is followed."""
    return ViewSpec(ENGINES_ID, "Engines", engines.COLUMNS, engines.rows, detail, engines.empty)


def events_spec(book: EventBook) -> ViewSpec:
    """The events in the book."""
    return ViewSpec(EVENTS_ID, "Events", EVENT_COLUMNS, book.rows, book.detail, book.empty)
