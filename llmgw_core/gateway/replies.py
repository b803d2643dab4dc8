"""What the gateway itself answers: errors in the shape of OpenAI's API, or of Anthropic's on its path."""

import json

from aiohttp import web

from llmgw_core.errors import GatewayError

SERVER = "llmgw"
MESSAGES_PATH = "/v1/messages"
_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "request_too_large",
    415: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_SERVER_ERROR = 500


class Refused(GatewayError):
    """A request that the gateway answers itself.

    Args:
        status: of HTTP.
        reason: stable word for programs, e.g. `queue_full`; the error's `code` in the answer, and a label of the metrics.
        text: for people.
        retry_after_s: when to try again; None: it would not help.
        param: the field of the request that is wrong.
    """

    code = "refused"

    def __init__(
        self,
        status: int,
        reason: str,
        text: str,
        *,
        retry_after_s: int | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        self.retry_after_s = retry_after_s
        self.param = param


def format_error(error: Refused, path: str) -> bytes:
    """The document of an error."""
    kind = _KINDS.get(error.status, "api_error")
    if path == MESSAGES_PATH:
        value: dict[str, object] = {
            "type": "error",
            "error": {"type": kind, "message": error.what, "code": error.reason},
        }
    else:
        kind = kind if error.status < _SERVER_ERROR else "server_error"
        value = {
            "error": {
                "message": error.what,
                "type": kind,
                "param": error.param,
                "code": error.reason,
            }
        }
    return json.dumps(value).encode()


def format_event(error: Refused, path: str) -> bytes:
    """The error as the last event of a stream."""
    name = b"event: error\n" if path == MESSAGES_PATH else b""
    return name + b"data: " + format_error(error, path) + b"\n\n"


def reply_error(error: Refused, path: str, request_id: str) -> web.Response:
    """The whole answer."""
    response = web.Response(
        body=format_error(error, path), status=error.status, content_type="application/json"
    )
    response.headers["X-Request-Id"] = request_id
    response.headers["Server"] = SERVER
    if error.retry_after_s is not None:
        response.headers["Retry-After"] = str(error.retry_after_s)
    if error.status == 401:  # noqa: PLR2004
        response.headers["WWW-Authenticate"] = "Bearer"
    return response
