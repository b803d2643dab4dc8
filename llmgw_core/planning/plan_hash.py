"""What a reviewer can hold a launch to: the same plan has the same hash, whenever and by whomever it is made. Pure."""

import hashlib
import json

from llmgw_core.domain.launch import LaunchPlan
from llmgw_core.domain.wire import to_jsonable

HASH_DIGITS = 12
_MIN_PREFIX = 6
_OF_ONE_LAUNCH = "engine_id"  # made anew for each launch


def hash_plan(plan: LaunchPlan) -> str:
    """12 hex digits over everything that will run: for each rank its node, GPUs, argv, env, working directory and limits.

    Not over findings, which speak of the moment, nor over the launch's own id. Secrets are in no plan.
    """
    ranks = [
        {key: value for key, value in _fields(rank).items() if key != _OF_ONE_LAUNCH}
        for rank in plan.ranks
    ]
    text = json.dumps([plan.schema, ranks], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS]


def is_hash_of(text: str, plan: LaunchPlan) -> bool:
    """Whether that is the plan's hash, or at least its first 6 digits."""
    return len(text) >= _MIN_PREFIX and hash_plan(plan).startswith(text.lower())


def _fields(rank: object) -> dict[str, object]:
    value = to_jsonable(rank)
    return dict(value) if isinstance(value, dict) else {}
