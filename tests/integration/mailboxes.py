"""A real IMAP server of a test's own: Debian's dovecot on loopback, one account, all its files in one folder."""

import os
import pwd
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tests.rig.waiting import LONGEST

USER: Final = "house"
PASSWORD: Final = 'p"ss\\ w%rd'
CONFIG: Final = """
base_dir = {folder}/run
state_dir = {folder}/state
log_path = {folder}/log
protocols = imap
listen = 127.0.0.1
ssl = {ssl}
ssl_cert = <{folder}/cert.pem
ssl_key = <{folder}/key.pem
disable_plaintext_auth = no
auth_mechanisms = plain login
default_internal_user = {internal}
default_internal_group = {group}
default_login_user = {login}
first_valid_uid = 1
mail_location = maildir:{folder}/mail
passdb {{
  driver = passwd-file
  args = {folder}/users
}}
userdb {{
  driver = static
  args = uid={uid} gid={gid} home={folder}/mail
}}
service anvil {{
  chroot =
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = {tls_port}
    ssl = yes
  }}
}}
"""


@dataclass(slots=True)
class Mailbox:
    """The server's folder and its two ports."""

    folder: Path
    port: int
    tls_port: int
    ports: tuple[int, ...] = ()
    server: "subprocess.Popen[bytes] | None" = None
    letters: int = 0

    def url(self, *, tls: bool = False, password: str = PASSWORD) -> str:
        """As BUTLERS_IMAP_URL takes it."""
        scheme, port = ("imaps", self.tls_port) if tls else ("imap", self.port)
        return f"{scheme}://{USER}:{quote(password, safe='')}@127.0.0.1:{port}"

    def put(self, letter: bytes) -> Path:
        """Deliver a letter as a mail server does: whole at once, as new; where it lies."""
        self.letters += 1
        name = f"{time.time_ns()}.{self.letters}.house"
        (self.folder / "mail" / "tmp" / name).write_bytes(letter)
        where = self.folder / "mail" / "new" / name
        owner = (self.folder / "mail").stat()
        os.chown(self.folder / "mail" / "tmp" / name, owner.st_uid, owner.st_gid)
        return (self.folder / "mail" / "tmp" / name).rename(where)

    def start(self) -> None:
        """Serve until `stop`."""
        command = [_dovecot(), "-F", "-c", str(self.folder / "dovecot.conf")]
        self.server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + LONGEST
        while not all(_answers(port) for port in self.ports):
            assert time.monotonic() < until, self.log()
            assert self.server.poll() is None, self.log()
            time.sleep(0.02)

    def stop(self) -> None:
        """End the server and its children."""
        if self.server is not None:
            self.server.send_signal(signal.SIGTERM)
            self.server.wait(LONGEST)
            self.server = None

    def latest_connection(self) -> int:
        """The process that serves whoever logged in last."""
        return int(re.findall(r"mpid=(\d+)", (self.folder / "log").read_text())[-1])

    def log(self) -> str:
        """What the server wrote."""
        return (self.folder / "log").read_text()[:2000] if (self.folder / "log").exists() else "no log"


@contextmanager
def mailbox(*, ssl: str = "yes") -> Iterator[Mailbox]:
    """A server with an empty mailbox, gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="butlers-mailbox-"))
    folder.chmod(0o755)
    box = Mailbox(folder, *_free_ports())
    box.ports = (box.port,) if ssl == "no" else (box.port, box.tls_port)
    try:
        _write(box, ssl)
        box.start()
        yield box
    finally:
        box.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _write(box: Mailbox, ssl: str) -> None:
    me = pwd.getpwuid(os.geteuid())
    internal, login = (pwd.getpwnam(name) if os.geteuid() == 0 else me for name in ("dovecot", "dovenull"))
    group = "dovecot" if os.geteuid() == 0 else str(me.pw_gid)
    users, ports = {"internal": internal.pw_name, "login": login.pw_name}, {"port": box.port, "tls_port": box.tls_port}
    accounts = {"uid": internal.pw_uid, "gid": internal.pw_gid, "group": group, **users}
    said = CONFIG.format(folder=box.folder, ssl=ssl, **accounts, **ports)
    (box.folder / "dovecot.conf").write_text(said)
    (box.folder / "users").write_text(f"{USER}:{{PLAIN}}{PASSWORD}\n")
    for part in ("", "new", "cur", "tmp"):
        (box.folder / "mail" / part).mkdir(exist_ok=True)
        os.chown(box.folder / "mail" / part, internal.pw_uid, internal.pw_gid)
    made = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    where = ("-subj", "/CN=127.0.0.1", "-keyout", str(box.folder / "key.pem"), "-out", str(box.folder / "cert.pem"))
    subprocess.run([*made, *where], check=True, capture_output=True)


def _dovecot() -> str:
    found = shutil.which("dovecot", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    assert found is not None, "There is no dovecot here. Install Debian's package dovecot-imapd."
    return found


def _free_ports() -> tuple[int, int]:
    """Two that are free, and below those that outgoing connections take; dovecot cannot choose them itself."""
    found = []
    for port in random.sample(range(10_000, 12_000), 200):
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            found.append(port)
    return found[0], found[1]


def _answers(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0
