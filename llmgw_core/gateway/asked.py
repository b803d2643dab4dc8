"""What a client asks for: read from the body of a request, which itself is passed on as it came. Pure but for its errors."""

import json
from dataclasses import dataclass
from typing import Any

from llmgw_core.gateway.replies import Refused
from llmgw_core.gateway.usage import BYTES_PER_TOKEN

PATHS = {
    "/v1/chat/completions": ("max_completion_tokens", "max_tokens"),
    "/v1/completions": ("max_tokens",),
    "/v1/responses": ("max_output_tokens",),
    "/v1/messages": ("max_tokens",),
    "/v1/embeddings": None,
}
_MAX_ANSWERS = 128
_MAX_MODEL_CHARS = 512
_AFFINITY_BYTES = 1024  # of the prompt: about the system prompt's begin
_PROMPT_FIELDS = ("system", "messages", "prompt", "input")


@dataclass(frozen=True)
class Asked:
    """The part of a request that routing and admission look at."""

    model: str
    is_stream: bool
    prompt_tokens: int  # estimate
    answers: int  # asked for at once; 0 where there is none, as of embeddings
    most_tokens: int | None  # of each answer; None: not said
    prefix: str  # how the prompt begins; "" where nobody needs it


def parse_body(path: str, body: bytes, *, wants_prefix: bool = False) -> Asked:
    """Read the body of a POST to one of `PATHS`.

    Raises:
        Refused: 400, naming the field.
    """
    try:
        data = json.loads(body)
    except RecursionError:
        raise Refused(400, "invalid_json", "the body is nested too deeply") from None
    except ValueError as error:
        text = f"the body is not valid JSON: {error}"
        raise Refused(400, "invalid_json", text) from None
    if not isinstance(data, dict):
        raise Refused(400, "invalid_json", "the body must be a JSON object")
    model = data.get("model")
    if not isinstance(model, str) or not model:
        raise _wrong("model", "a string that names a model", model)
    if len(model) > _MAX_MODEL_CHARS:
        raise _wrong("model", f"of at most {_MAX_MODEL_CHARS} characters", model)
    is_stream = data.get("stream")
    if is_stream is not None and not isinstance(is_stream, bool):
        raise _wrong("stream", "true or false", is_stream)
    fields = PATHS[path]
    answers = 0 if fields is None else _find_whole(data, ("n",), 1, _MAX_ANSWERS) or 1
    most = _find_whole(data, fields, 0, 1 << 31) if fields else None
    prefix = _find_prefix(data) if wants_prefix else ""
    return Asked(model, bool(is_stream), len(body) // BYTES_PER_TOKEN, answers, most, prefix)


def _find_whole(
    data: dict[str, Any], names: tuple[str, ...], least: int, largest: int
) -> int | None:
    for name in names:
        value = data.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= largest:
            raise _wrong(name, f"a whole number from {least} to {largest}", value)
        return value
    return None


def _find_prefix(data: dict[str, Any]) -> str:
    return "".join(
        json.dumps(data[name])[:_AFFINITY_BYTES] for name in _PROMPT_FIELDS if name in data
    )[:_AFFINITY_BYTES]


def _wrong(name: str, expected: str, value: object) -> Refused:
    kind = "missing" if value is None else f"{type(value).__name__} {ascii(value)[:40]}"
    return Refused(400, "invalid_value", f"{name} must be {expected}; it is {kind}", param=name)
