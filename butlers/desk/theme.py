"""How a popup looks and sounds by what the system says: its colours, the monitors there are, and its chimes."""

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

# A monitor that a person has set up by hand has no plus.
_LISTED: Final = re.compile(r"\s*\d+: \+?(\*?)\S* (\d+)/\d+x(\d+)/\d+([+-]\d+)([+-]\d+)")


class Palette(NamedTuple):
    """The colours of a window: ink on paper, what is typed on a well, quieter words, and the button that sends."""

    paper: str
    ink: str
    well: str
    soft: str
    accent: str
    accent_ink: str


PALETTES: Final[Mapping[tuple[str, bool], Palette]] = {
    ("light", False): Palette("#f6f4ef", "#1f2328", "#ffffff", "#57606a", "#1f5f4a", "#ffffff"),
    ("dark", False): Palette("#1f2328", "#eceae4", "#14171a", "#a9b1ba", "#7fd1b0", "#10231c"),
    ("light", True): Palette("#ffffff", "#000000", "#ffffff", "#000000", "#000000", "#ffffff"),
    ("dark", True): Palette("#000000", "#ffffff", "#000000", "#ffff00", "#ffff00", "#000000"),
}


class Monitor(NamedTuple):
    """One screen: its size and where it begins."""

    width: int
    height: int
    x: int
    y: int


_PERSONALIZE: Final = r"HKCU\Software\Microsoft\Windows\CurrentVersion\Themes\Personalize"
# By platform: the commands that tell the theme and the contrast, and what they say where it is dark, or high.
_THEME: Final[Mapping[str, tuple[Sequence[str], str]]] = {
    "darwin": (("defaults", "read", "-g", "AppleInterfaceStyle"), r"Dark"),
    "win32": (
        ("reg", "query", _PERSONALIZE, "/v", "AppsUseLightTheme"),
        r"AppsUseLightTheme\s+REG_DWORD\s+0x0\b",
    ),
    "linux": (("gsettings", "get", "org.gnome.desktop.interface", "color-scheme"), r"prefer-dark"),
}
_CONTRAST: Final[Mapping[str, tuple[Sequence[str], str]]] = {
    "darwin": (("defaults", "read", "com.apple.universalaccess", "increaseContrast"), r"1"),
    "win32": (
        ("reg", "query", r"HKCU\Control Panel\Accessibility\HighContrast", "/v", "Flags"),
        r"Flags\s+REG_SZ\s+\d*[13579]\b",
    ),
    "linux": (("gsettings", "get", "org.gnome.desktop.a11y.interface", "high-contrast"), r"true"),
}
_PLAYERS: Final = (("paplay",), ("pw-play",), ("aplay", "-q"), ("afplay",))


class Asked:
    """A command that runs beside us, and whether it says what is looked for; false if it fails or takes a second."""

    def __init__(self, command: Sequence[str], finds: str = "") -> None:
        self._finds = finds
        self._process: subprocess.Popen[str] | None = None
        with suppress(OSError):
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )

    def said(self) -> str:
        """Return what it printed, or nothing if it failed."""
        if self._process is None:
            return ""
        try:
            told, _ = self._process.communicate(timeout=1)
        except (subprocess.TimeoutExpired, UnicodeDecodeError):
            self._process.kill()
            return ""
        return told if self._process.returncode == 0 else ""

    def holds(self) -> bool:
        """Return whether what it printed has what is looked for."""
        return re.search(self._finds, self.said()) is not None


def palette(theme: str, platform: str) -> Palette:
    """Return the colours for this theme, `auto` as the system says; light where it says nothing."""
    asked = _THEME.get(platform, _THEME["linux"]), _CONTRAST.get(platform, _CONTRAST["linux"])
    dark, high = (Asked(command, finds) for command, finds in asked)
    chosen = theme if theme != "auto" else "dark" if dark.holds() else "light"
    return PALETTES[chosen, high.holds()]


def monitors() -> list[Monitor]:
    """Return the monitors there are, as far as the system says, the primary one first."""
    return listed_monitors(Asked(("xrandr", "--listmonitors")).said())


def listed_monitors(listed: str) -> list[Monitor]:
    """Return the monitors that `xrandr --listmonitors` lists, the primary one first."""
    found = list(filter(None, map(_LISTED.match, listed.split("\n"))))
    return [Monitor(*(int(one[n]) for n in range(2, 6))) for one in sorted(found, key=lambda one: not one[1])]


def play(name: str) -> bool:
    """Play a chime by the first player there is, to its end; return whether it was heard."""
    sound = Path(__file__).parent / "sounds" / f"{name}.wav"
    for player in _PLAYERS:
        if shutil.which(player[0]):
            with suppress(OSError, subprocess.TimeoutExpired):
                done = subprocess.run([*player, str(sound)], capture_output=True, timeout=5, check=False)
                return done.returncode == 0
    return False
