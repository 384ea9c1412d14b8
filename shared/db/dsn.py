"""The URLs of the database: the one that may make roles and tables, and the one of each daemon's login."""

import os
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from shared import home_folder
from shared.config.settings import Settings
from shared.errors import Misconfigured
from shared.postgres import server as postgres

DATABASE = "butlers"
LAST_PORT = 65535


def admin_dsn(settings: Settings) -> str:
    """Return the URL that may make roles and tables: DATABASE_URL, or the embedded server's if it runs."""
    if settings.database_url is not None:
        dsn = settings.database_url.reveal()
        if not _has_fitting_ports(dsn):
            raise Misconfigured("DATABASE_URL has an invalid port.", "Use a number from 1 to 65535.")
        return dsn
    server = postgres.running(settings.home) if is_embedded(settings) else None
    if server is None:
        raise Misconfigured("The database is not running.", "Start everything with `butlers up`, or set DATABASE_URL.")
    return server.dsn_of(DATABASE)


def is_embedded(settings: Settings) -> bool:
    """Return whether the house works on the embedded database.

    Raises Misconfigured where DATABASE_URL is missing: what the embedded server has in a home that works on another
    database is nothing, or was left there before that.
    """
    if settings.database_url is not None:
        return False
    if outside := home_folder.remembered(settings.home, is_shared=True).get(home_folder.OUTSIDE):
        raise Misconfigured(
            f"This home works on a database of its own, {outside}.",
            "Set DATABASE_URL. To go back to the embedded one, first remove the line that begins with "
            f'"{home_folder.OUTSIDE}" from {settings.home / home_folder.FILE}.',
        )
    return True


def _has_fitting_ports(dsn: str) -> bool:
    """Return whether each of the hosts, separated by commas as in libpq, has a valid port or none."""
    hosts = urlsplit(dsn).netloc.rpartition("@")[2].split(",")
    ports = [host.rpartition("]")[2].partition(":")[2] for host in hosts]
    return all(not port or (port.isdecimal() and port.isascii() and 0 < int(port) <= LAST_PORT) for port in ports)


def trouble(error: BaseException) -> str:
    """Return what is wrong with the database or the way to it, as the end of a sentence without its full stop."""
    if isinstance(error, TimeoutError):
        return "it does not answer"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno) if error.errno > 0 else str(error.strerror)
    return next(iter(str(error).splitlines()), type(error).__name__).strip().rstrip(".")


def place_of(dsn: str) -> str:
    """Return where that database is, as a person would know it: without login and password."""
    return f"{unquote(urlsplit(dsn).netloc.rpartition('@')[2]) or 'this machine'}/{database_of(dsn)}"


def dsn_as(admin: str, name: str, password: str) -> str:
    """Return the URL of the same database by the login of one daemon.

    Without a password it uses the login of the given URL, and acts under the daemon's name.
    """
    parts = urlsplit(admin)
    if not password:
        query = f"{parts.query}&" if parts.query else ""
        return urlunsplit((parts.scheme, parts.netloc, parts.path, f"{query}butlers.me={quote(name)}", ""))
    login = f"{quote(database_of(admin))}_{name}:{quote(password, safe='')}"
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, f"{login}@{host}", parts.path, parts.query, ""))


def database_of(dsn: str) -> str:
    """Return the database's name in a URL."""
    return urlsplit(dsn).path.lstrip("/") or "postgres"


def role_of(dsn: str, name: str) -> str:
    """Return the name of one daemon's login role in that database."""
    return f"{database_of(dsn)}_{name}"
