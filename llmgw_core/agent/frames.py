"""Length-prefixed JSON frames: 4 bytes big-endian length, then UTF-8 JSON (docs/agent-protocol.md)."""

import json
import struct
from typing import Any, Callable, Dict, List, Optional

from llmgw_core.agent.protocol import MAX_FRAME_BYTES
from llmgw_core.errors import ProtocolError

Check = Callable[[bytes], None]
_HEADER = struct.Struct(">I")


def encode_frame(message: Dict[str, Any]) -> bytes:
    """The message as one frame.

    Raises:
        ProtocolError: it is longer than a frame may be.
    """
    body = json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    if len(body) > MAX_FRAME_BYTES:
        raise ProtocolError(
            f"a message of {len(body)} bytes was not sent",
            f"a frame holds at most {MAX_FRAME_BYTES}",
            "this is an error of llmgw: report it with what was done",
        )
    return _HEADER.pack(len(body)) + body


class FrameDecoder:
    """Turns bytes, cut anywhere, into messages. Never holds more than one frame's worth.

    Args:
        check: raises a ValueError for a body that is JSON and must not be taken all the same.
    """

    def __init__(self, check: Optional[Check] = None) -> None:
        self._buffer = bytearray()
        self._check = check

    def feed(self, data: bytes) -> List[Dict[str, Any]]:
        """The messages that are complete with these bytes, in order; may be none.

        Raises:
            ProtocolError: a frame is too long, is not JSON, or is not an object. The connection is of no more use.
        """
        self._buffer += data
        messages: List[Dict[str, Any]] = []
        while len(self._buffer) >= _HEADER.size:
            (length,) = _HEADER.unpack_from(self._buffer)
            if length > MAX_FRAME_BYTES:
                raise _torn(
                    f"a frame announces {length} bytes, at most {MAX_FRAME_BYTES} are allowed",
                    bytes(self._buffer[:64]),
                )
            if len(self._buffer) < _HEADER.size + length:
                break
            body = bytes(self._buffer[_HEADER.size : _HEADER.size + length])
            del self._buffer[: _HEADER.size + length]
            messages.append(_decode_body(body, self._check))
        return messages

    @property
    def is_mid_frame(self) -> bool:
        """Whether the bytes so far end inside a frame."""
        return bool(self._buffer)


def _decode_body(body: bytes, check: Optional[Check]) -> Dict[str, Any]:
    try:
        message = json.loads(body)
        if check is not None:
            check(body)
    except (ValueError, RecursionError) as error:
        raise _torn(f"a frame is not JSON ({error})", body) from None
    if not isinstance(message, dict):
        raise _torn("a frame is not a JSON object", body)
    return message


def _torn(why: str, seen: bytes) -> ProtocolError:
    shown = ascii(seen[:64])
    return ProtocolError(
        "the connection carries something that is not llmgw's protocol",
        f"{why}; it began {shown}",
        "look for a login script that prints, or a proxy that changes bytes; llmgw connects anew",
    )
