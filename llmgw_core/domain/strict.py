"""How pydantic shall read the domain types at a trust boundary: a plain dictionary, so that nodes need no pydantic."""

from typing import Any, Dict

STRICT: Dict[str, Any] = {"extra": "forbid", "strict": True, "allow_inf_nan": False}
