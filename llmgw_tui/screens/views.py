"""The numbered views and what each shows."""

from llmgw_tui.present import fabric, gpus, nodes
from llmgw_tui.widgets.master_detail import ViewSpec

CLUSTER = ViewSpec("cluster", "Cluster", nodes.COLUMNS, nodes.rows, nodes.detail, nodes.empty)
GPUS = ViewSpec("gpus", "GPUs", gpus.COLUMNS, gpus.rows, gpus.detail, gpus.empty)
FABRIC = ViewSpec("fabric", "Fabric", fabric.COLUMNS, fabric.rows, fabric.detail, fabric.empty)
ENGINES_ID = "engines"
LOG_ID = "log"
IDS = (CLUSTER.id, GPUS.id, FABRIC.id, ENGINES_ID, LOG_ID)
TITLES = ("Cluster", "GPUs", "Fabric", "Engines", "Log")
