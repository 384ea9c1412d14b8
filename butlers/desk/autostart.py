"""The file by which a desk starts when its person signs in to the computer: a user unit of systemd, or launchd's."""

import plistlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shared.errors import InvalidInput

NAME: Final = "butlers-desk"
_UNIT: Final = """[Unit]
Description=Butlers: questions on your own screen
PartOf=graphical-session.target
After=graphical-session.target

[Service]
ExecStart={command}
Restart=on-failure
RestartSec=5
# The console does not know this desk any more: only a person can mend that.
RestartPreventExitStatus=1

[Install]
WantedBy=graphical-session.target
"""


@dataclass(frozen=True, slots=True)
class Written:
    """The file that was written, and the command that starts the desk now."""

    file: Path
    start: str


def write_autostart(platform: str, home: Path, command: Sequence[str]) -> Written:
    """Write the autostart file of this system below that home; raise InvalidInput where there is no way known."""
    if platform == "linux":
        file = home / ".config/systemd/user" / f"{NAME}.service"
        content = _UNIT.format(command=" ".join(_quoted(word) for word in command)).encode()
        start = f"systemctl --user enable --now {NAME}"
    elif platform == "darwin":
        file = home / "Library/LaunchAgents" / f"{NAME}.plist"
        about = {
            "Label": NAME,
            "ProgramArguments": [*command],
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
        }
        content = plistlib.dumps(about)
        start = f"launchctl load {file}"
    else:
        raise InvalidInput("There is no autostart file for this system.", "Start `butlers desk run` when you sign in.")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return Written(file, start)


def _quoted(word: str) -> str:
    """Return a word as a unit's ExecStart takes it: no character of it means anything."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{plain}"'
