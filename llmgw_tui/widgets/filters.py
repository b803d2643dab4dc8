"""What the whole screen is passed through on its way to the terminal: signs in ASCII, and styles without colour."""

from functools import lru_cache
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

from llmgw_tui.present.ascii import to_ascii


class Look(NamedTuple):
    """What the terminal takes."""

    colors: bool = True
    ascii_only: bool = False

    @property
    def filters(self) -> tuple[LineFilter, ...]:
        """What every line is passed through."""
        plain = () if self.colors else (WithoutColorFilter(),)
        return (*plain, AsciiFilter()) if self.ascii_only else plain


class AsciiFilter(LineFilter):
    """Everything in ASCII, frames and scrollbars too, each cell in its place."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments with other signs."""
        del background
        return [Segment(to_ascii(text), style, control) for text, style, control in segments]


class WithoutColorFilter(LineFilter):
    """No colour at all: what had a background of its own, like the cursor's row, is in reverse video instead."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments with bold, underline and reverse alone."""
        del background
        return [
            Segment(text, None if style is None else without_color(style), control)
            for text, style, control in segments
        ]


@lru_cache(maxsize=1024)
def without_color(style: Style) -> Style:
    """The style without its colours."""
    has_ground = style.bgcolor is not None and not style.bgcolor.is_default
    return Style(
        bold=style.bold,
        underline=style.underline,
        reverse=bool(style.reverse) or has_ground,
        meta=style.meta,
    )
