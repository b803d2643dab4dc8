"""The console's colours. No state is told by colour alone, so each of these is a matter of taste, light and eyes."""

from textual.theme import Theme

_DARK = Theme(
    name="llmgw",
    primary="#7aa2f7",
    secondary="#7dcfff",
    accent="#c0a6ff",
    success="#8fce6b",
    warning="#e5b567",
    error="#f7768e",
    foreground="#d5d9e6",
    background="#11131a",
    surface="#181b25",
    panel="#222634",
    dark=True,
)
_LIGHT = Theme(
    name="light",
    primary="#1f4fb0",
    secondary="#0a5c75",
    accent="#5b32a8",
    success="#22661a",
    warning="#7a4d00",
    error="#a80f36",
    foreground="#1a1e2c",
    background="#fafbfd",
    surface="#eef0f5",
    panel="#dde1ea",
    dark=False,
    variables={"tone-dim": "#565d70"},
)
_CONTRAST = Theme(
    name="contrast",
    primary="#8fc7ff",
    secondary="#7ff0ff",
    accent="#ffc6ff",
    success="#7dff7d",
    warning="#ffe14d",
    error="#ff9d9d",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#1c1c1c",
    dark=True,
    variables={"tone-dim": "#c4c4c4"},
)
# After Okabe and Ito: blue, yellow and vermilion are told apart by every kind of colour vision.
_COLORBLIND = Theme(
    name="colorblind",
    primary="#56b4e9",
    secondary="#b9c4cc",
    accent="#cc9fbb",
    success="#4aa8f0",
    warning="#f0e442",
    error="#ff6a1f",
    foreground="#e2e2e2",
    background="#101010",
    surface="#191919",
    panel="#262626",
    dark=True,
    variables={"tone-dim": "#8c8c8c"},
)
OWN_THEMES = (_DARK, _LIGHT, _CONTRAST, _COLORBLIND)
TERMINAL_THEMES = ("ansi-dark", "ansi-light")  # the sixteen colours of the terminal itself
THEME_NAMES = (*(theme.name for theme in OWN_THEMES), *TERMINAL_THEMES)
DEFAULT_THEME = _DARK.name
THEME_WITHOUT_COLOR = "ansi-dark"
