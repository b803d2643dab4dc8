"""What a request is taken for before it runs, and what it used, read from the bytes that pass. Pure."""

import re
from collections import deque

BYTES_PER_TOKEN = 4
FIRST_GUESS_TOKENS = 256  # of an answer, before the tenant had one
_MEAN_OF = 16  # answers, about
# Inside a JSON string a quote is escaped, so that these cannot be words of an answer.
_TOTAL = re.compile(rb'"total_tokens"\s*:\s*(\d{1,12})')
_INPUT = re.compile(rb'"(?:prompt|input)_tokens"\s*:\s*(\d{1,12})')
_OUTPUT = re.compile(rb'"(?:completion|output)_tokens"\s*:\s*(\d{1,12})')
_HEAD_BYTES = 4096
_LAST_PIECES = 4


class AnswerMeter:
    """Watches one answer pass. It keeps the first and the last pieces, where engines say what was used."""

    __slots__ = ("_first", "_last", "bytes", "events")

    def __init__(self) -> None:
        self.bytes = 0
        self.events = 0  # of a stream: about one for each token
        self._first = b""
        self._last: deque[bytes] = deque(maxlen=_LAST_PIECES)

    def feed(self, data: bytes) -> None:
        """A piece that passes."""
        if not self.bytes:
            self._first = data[:_HEAD_BYTES]
        self.bytes += len(data)
        self.events += data.count(b"\n\n")
        self._last.append(data)

    @property
    def is_at_event_end(self) -> bool:
        """Whether an event may be added to the stream."""
        return not self._last or self._last[-1].endswith(b"\n\n")

    def tokens(self, prompt_tokens: int) -> tuple[int, int]:
        """(of the prompt, of the answer): what the engine said, else the estimate and the count of events."""
        tail = b"".join(self._last)[-16 * _HEAD_BYTES :]
        outputs = _OUTPUT.findall(tail)
        inputs = _INPUT.findall(tail) or _INPUT.findall(self._first)
        prompt = int(inputs[-1]) if inputs else prompt_tokens
        if outputs:
            return prompt, int(outputs[-1])
        totals = _TOTAL.findall(tail)
        if totals:
            return prompt, max(0, int(totals[-1]) - prompt)
        return prompt, self.events


class OutputGuess:
    """How long a tenant's answers are, on average."""

    __slots__ = ("_mean",)

    def __init__(self) -> None:
        self._mean = float(FIRST_GUESS_TOKENS)

    def learn(self, tokens: int) -> None:
        """One more answer."""
        self._mean += (tokens - self._mean) / _MEAN_OF

    def guess(self, most: int | None, answers: int) -> int:
        """Tokens of so many answers, none longer than `most`."""
        one = self._mean if most is None else min(most, self._mean)
        return int(one * answers)
