"""Frames: messages come back whole however the bytes are cut, and anything else is a ProtocolError."""

import itertools
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.agent.frames import FrameDecoder, encode_frame
from llmgw_core.agent.protocol import MAX_FRAME_BYTES
from llmgw_core.errors import ProtocolError

MESSAGES = st.lists(
    st.dictionaries(
        st.text(max_size=5), st.none() | st.integers() | st.text(max_size=20), max_size=4
    )
)


def frame_of(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


@given(MESSAGES, st.lists(st.integers(0, 400)))
def test_messages_come_back_however_the_bytes_are_cut(
    messages: list[dict[str, Any]], cuts: list[int]
) -> None:
    stream = b"".join(encode_frame(message) for message in messages)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    decoder = FrameDecoder()

    got = []
    for start, end in itertools.pairwise(edges):
        got += decoder.feed(stream[start:end])

    assert got == messages
    assert decoder.is_mid_frame is False


@given(st.lists(st.binary(max_size=64)))
def test_any_bytes_give_objects_or_a_protocol_error(chunks: list[bytes]) -> None:
    decoder = FrameDecoder()

    for chunk in chunks:
        try:
            messages = decoder.feed(chunk)
        except ProtocolError:
            return
        assert all(isinstance(message, dict) for message in messages)


@given(st.binary(max_size=200))
def test_any_body_in_a_right_frame_gives_an_object_or_a_protocol_error(body: bytes) -> None:
    try:
        (message,) = FrameDecoder().feed(frame_of(body))
    except ProtocolError:
        return
    assert isinstance(message, dict)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[1]",
        b"3",
        b"null",
        b"{",
        b"\xff\xfe\x00",
        b"[" * 200_000,
        b'{"a": ' + b"9" * 5000 + b"}",
    ],
    ids=["empty", "list", "number", "null", "torn", "not-utf8", "deep", "long-number"],
)
def test_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        FrameDecoder().feed(frame_of(body))


def test_frame_too_long_is_refused_by_its_header_alone() -> None:
    with pytest.raises(ProtocolError, match="announces 1048577 bytes"):
        FrameDecoder().feed(struct.pack(">I", MAX_FRAME_BYTES + 1))


def test_banner_of_a_login_shell_is_shown_in_the_error() -> None:
    with pytest.raises(ProtocolError) as caught:
        FrameDecoder().feed(b"Welcome to node n07!\r\n")

    assert "Welcome to node n07!" in caught.value.message


def test_message_too_long_is_not_sent() -> None:
    with pytest.raises(ProtocolError, match="was not sent"):
        encode_frame({"data": "x" * MAX_FRAME_BYTES})


def test_half_a_frame_is_told() -> None:
    decoder = FrameDecoder()

    decoder.feed(encode_frame({"a": 1})[:-1])

    assert decoder.is_mid_frame is True


def test_text_beyond_ascii_survives() -> None:
    (message,) = FrameDecoder().feed(encode_frame({"name": "ü–×\ud800"}))

    assert message == {"name": "ü–×\ud800"}
    assert json.dumps(message).isascii()
