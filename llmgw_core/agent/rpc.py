"""JSON-RPC 2.0 messages, read strictly and built. The proxy imports this at each start: it must stay light."""

from typing import Any, Dict, NamedTuple, Union

from llmgw_core.agent.protocol import APPLICATION_ERROR
from llmgw_core.errors import LlmgwError, ProtocolError

RequestId = Union[int, str, None]


class Request(NamedTuple):
    """One request; a notification has no id."""

    id: RequestId
    method: str
    params: Dict[str, Any]  # Any: JSON values, read by `params.read_params`


def parse_request(message: Dict[str, Any]) -> Request:
    """The request in a frame.

    Raises:
        ProtocolError: it is no JSON-RPC 2.0 request; the connection is of no more use.
    """
    identifier = message.get("id")
    method = message.get("method")
    params = message.get("params", {})
    if message.get("jsonrpc") != "2.0" or not isinstance(method, str):
        raise _no_request('it has no `jsonrpc` "2.0" or no `method`')
    if not isinstance(identifier, (int, str, type(None))) or isinstance(identifier, bool):
        raise _no_request("its `id` is neither a number nor a string")
    if not isinstance(params, dict):
        raise _no_request("its `params` are no object")
    return Request(identifier, method, params)


def make_result(identifier: RequestId, result: Any) -> Dict[str, Any]:
    """The answer to a request. `result` is JSON-ready."""
    return {"jsonrpc": "2.0", "id": identifier, "result": result}


def make_error(
    identifier: RequestId, error: LlmgwError, code: int = APPLICATION_ERROR
) -> Dict[str, Any]:
    """The answer to a request that was not done. Id None: about the connection as a whole."""
    body = {"code": code, "message": error.message, "data": error.to_wire()}
    return {"jsonrpc": "2.0", "id": identifier, "error": body}


def make_request(identifier: RequestId, method: str, params: Dict[str, Any]) -> Dict[str, Any]:
    """A request."""
    return {"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}


def make_notification(method: str, params: Dict[str, Any]) -> Dict[str, Any]:
    """A message that wants no answer."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


def _no_request(why: str) -> ProtocolError:
    return ProtocolError(
        "a message is no JSON-RPC 2.0 request", why, "docs/agent-protocol.md says what is"
    )
