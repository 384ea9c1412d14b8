"""Assembling daemons: the context each works in, its app, its loops and its local client."""

import asyncio
import importlib
import socket
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

from butlers import fleet
from butlers.butler import Butler, Components, Context, Daemon, Loop, joined
from butlers.daemon.directory import Desks, Directory
from butlers.daemon.sockets import SANDBOX_IMAP, SANDBOX_SMTP
from butlers.modules import loader
from butlers.refusals import note_refusal
from butlers.runtime.registry import keys_of
from butlers.sessions import settings as runtime_settings
from butlers.sessions.course import Place
from butlers.setup import logins, migrate
from shared import home_folder
from shared.auth import keystore
from shared.auth.tokens import Signer, Verifier
from shared.channels import realms
from shared.channels.telegram import SPEC as TELEGRAM
from shared.config.settings import Settings
from shared.config.timings import STANDARD
from shared.db.dsn import dsn_as, role_of
from shared.db.pool import BREATH_SECONDS, Database
from shared.db.wake import Wake, listen
from shared.errors import Away
from shared.loops import pause
from shared.rpc import DaemonClient
from shared.storage import notices, sessions
from shared.telemetry.logs import logger

if TYPE_CHECKING:
    from butlers.daemon.app import LocalClient

log = logger("butlers.daemon.assembly")
# How long a start waits for a database that starts or recovers; after that it fails, for its supervisor to try again.
PATIENCE_SECONDS: Final = 30.0
TOPICS: Final = ("settled", "released", "deliveries", "cards", "updates", "edits", "inbox", "schedules", notices.TOPIC)
# The topics a daemon hears from other processes. A butler listens to none: its answers come with its calls, and a call
# that waits for the owner looks every half second. So no other butler can overhear a hint or flood a butler with hints.
HEARD: Final = {"switchboard": ("released", "inbox"), "messenger": ("deliveries", "cards"), "console": ("cards",)}
# Loaded by name, so that the framework does not import those built on it.
BUTLERS: Final = {"switchboard": "switchboard.daemon", "messenger": "messenger.daemon"}
CONSOLE: Final = "butlers.console.app"
SANDBOX: Final = "messenger.sandbox.app"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Plan:
    """What one process serves: which daemons, by which login, and on which port."""

    settings: Settings
    dsn: str
    entries: Sequence[fleet.Entry]
    names: Sequence[str]
    # All daemons in one process: the login is then `up`, and each unit of work names its role.
    together: bool
    port: int | None = None
    # It serves all butlers of the fleet, also those that come later.
    whole: bool = False

    def by_login(self) -> "list[Plan]":
        """Return a plan for each login of the database: one for all daemons, or one for each."""
        return [self] if self.together else [replace(self, names=[name]) for name in self.names]


@asynccontextmanager
async def database(plan: Plan, stopping: asyncio.Event) -> AsyncIterator[Database]:
    """Open this process's pool once the server is there, and only on the schema this program was made for."""
    db = await once_there(partial(_connected, plan), stopping, PATIENCE_SECONDS)
    try:
        yield db
    finally:
        await db.close()


async def _connected(plan: Plan) -> Database:
    login = keystore.UP if plan.together else plan.names[0]
    keys = keystore.read(plan.settings.home, login)
    # Read again for each connection, since it may be replaced meanwhile.
    password = (lambda: keystore.read(plan.settings.home, login).password) if keys.has_login else None
    dsn = dsn_as(plan.dsn, login, keys.password)
    db = await Database.open(dsn, most=logins.pool_of(login), password=password)
    try:
        async with acting(plan, db, "switchboard").work() as connection:
            await migrate.demand_schema(connection)
            await logins.demand_mode(connection, own_login=keys.has_login)
        if "messenger" in plan.names:
            async with acting(plan, db, "messenger").work() as connection:
                await realms.demand_same(connection, realms.configured(plan.settings), STANDARD.instance_counts)
    except BaseException:
        await db.close()
        raise
    return db


async def once_there(ask: Callable[[], Awaitable[T]], stopping: asyncio.Event, seconds: float) -> T:
    """Return what `ask` gives, trying again while the database is away; log its absence once.

    Raise Away after that many seconds, and KeyboardInterrupt if the process is told to stop.
    """
    deadline, said = time.monotonic() + seconds, False
    while True:
        try:
            return await ask()
        except Away as away:
            if time.monotonic() > deadline:
                raise
            if await pause(stopping, BREATH_SECONDS):
                raise KeyboardInterrupt from None
            if not said:
                log.warning("the database is waited for", why=away.message, at_most_seconds=seconds)
            said = True


def acting(plan: Plan, db: Database, name: str) -> Database:
    """Return the pool for that daemon: in a process with all daemons under its role, or, if it has none, its name."""
    if not plan.together:
        return db
    if has_logins(plan):
        return db.acting_as(role_of(plan.dsn, name), logins.pool_of(name))
    return db.named(name, logins.pool_of(name))


def has_logins(plan: Plan) -> bool:
    """Return whether the daemons have logins of their own, as `butlers migrate` noted with their keys."""
    return keystore.read(plan.settings.home, keystore.UP if plan.together else plan.names[0]).has_login


def listening_dsn(plan: Plan) -> str:
    """Return the URL by which this process listens for wake hints."""
    login = keystore.UP if plan.together else plan.names[0]
    return dsn_as(plan.dsn, login, keystore.read(plan.settings.home, login).password)


class Assembly:
    """The daemons of one process, made one after the other; wakes and clients are shared, keys and roles are not."""

    def __init__(self, plan: Plan, db: Database, stopping: asyncio.Event | None = None) -> None:
        self.plan = plan
        self.stopping = stopping or asyncio.Event()
        self.local: dict[str, LocalClient] = {}
        self.wakes: Mapping[str, Wake] = {topic: Wake() for topic in TOPICS}
        self.contexts: dict[str, Context] = {}
        self._db = db
        self.directory = Directory(acting(plan, db, plan.names[0]), plan.settings.timings)
        self._instance = f"{socket.gethostname()}:{uuid.uuid4().hex[:12]}"

    def heard(self) -> Mapping[str, Wake]:
        """Return the topics that this process listens to for the daemons in it, each with its wake."""
        return {topic: self.wakes[topic] for name in self.plan.names for topic in HEARD.get(name, ())}

    def context(self, name: str, stopping: asyncio.Event | None = None) -> Context:
        """Make the context of the daemon of that name, which stops with the process, or before it."""
        plan, timings = self.plan, self.plan.settings.timings
        keys = keystore.read(plan.settings.home, name)
        self.contexts[name] = Context(
            name=name,
            instance=f"{name}@{self._instance}",
            home=plan.settings.home,
            settings=plan.settings,
            db=acting(plan, self._db, name),
            daemons=DaemonClient(
                Signer(name, keys.private_pem, self.directory.clock), self.directory.find, self.local, timings
            ),
            secret=keys.secret,
            new_id=lambda: str(uuid.uuid4()),
            wakes=self.wakes,
            stopping=stopping or self.stopping,
        )
        return self.contexts[name]

    def place(self, name: str, url: str) -> Place | None:
        """Return where that butler's sessions are run, if it has a runtime; its daemon must be made."""
        entry = self.entry(name)
        if entry.runtime is None:
            return None
        signer = Signer(name, keystore.read(self.plan.settings.home, name).private_pem, self.directory.clock)
        setup, keys = runtime_settings.setup_of(entry.runtime), keys_of(self.plan.settings)
        return Place(self.contexts[name], signer, entry.persona.strip(), url, setup, keys)

    def desks(self, context: Context) -> Desks:
        """Return what the console needs to sign in desks and to know them again."""
        keys, live = self.directory.keys_of, Directory(context.db, context.settings.timings).is_live
        signer = Signer(context.name, keystore.read(context.home, context.name).private_pem, self.directory.clock)
        tell = partial(note_refusal, context)
        known = Verifier(context.name, keys, self.directory.clock, accepts=frozenset(), is_live=live, tell=tell)
        return Desks(signer, known)

    async def write_channels(self) -> None:
        """Store where the channels of the Messenger in this process go, which nobody else knows."""
        async with acting(self.plan, self._db, "messenger").work() as connection:
            await realms.write_channels(connection, realms.configured(self.plan.settings))

    def entry(self, name: str) -> fleet.Entry:
        """Return what the fleet says of the butler of that name."""
        return next(one for one in self.plan.entries if one.name == name)

    def daemon(self, name: str, url: str, stopping: asyncio.Event | None = None) -> Daemon:
        """Make the daemon of that name, which others reach at that URL."""
        hosts = hosts_of(self.plan.settings, url)
        if name == "console":
            module = importlib.import_module(CONSOLE)
            context = self.context(name)
            app = module.create_app(
                context, clock=time.monotonic, allowed_hosts=frozenset(hosts), desks=self.desks(context)
            )
            loops = [partial(module.end_streams, app), partial(module.end_links, context)]
            return Daemon(name, "console", app, loops, context=context)
        if name in BUTLERS:
            butler: Butler = importlib.import_module(BUTLERS[name]).BUTLER
        else:
            entry = self.entry(name)
            butler = Butler(
                name,
                entry.description,
                build=partial(parts_of, loader.load(entry), entry),
                persona=entry.persona.strip(),
                has_runtime=entry.runtime is not None,
            )
        context = self.context(name, stopping)
        live = Directory(context.db, context.settings.timings).is_live
        verifier = Verifier(
            name,
            self.directory.keys_of,
            self.directory.clock,
            accepts=butler.accepts,
            is_live=live,
            tell=partial(note_refusal, context),
        )
        from butlers.daemon.app import build  # noqa: PLC0415  # 35 MB that the console and the sandbox do not need

        daemon, self.local[name] = build(butler, context, verifier, hosts)
        return daemon


def parts_of(modules: Sequence[loader.Loaded], entry: fleet.Entry, context: Context) -> Components:
    """Make what a butler of the fleet has beside the core tools."""
    from butlers.tools import ask_butler, desk_notify  # noqa: PLC0415  # they bring MCP's types along

    shows = [desk_notify.popups(context)] if entry.has_desk else []
    return joined([ask_butler.asking(context, entry.calls), *shows, loader.build(modules, context)])


def sandbox(settings: Settings, url: str, share: float) -> Daemon:
    """Make the sandbox, which knows neither keys nor database; each of its files may hold that share of memory."""
    module = importlib.import_module(SANDBOX)
    base = settings.port_base
    mail = module.MailSink(settings.host, base + SANDBOX_SMTP, feed=base + SANDBOX_IMAP)
    owner = int(settings.owner_telegram or TELEGRAM.sandbox_owner)
    home_folder.make(settings.home)
    hosts, most = frozenset(hosts_of(settings, url)), int(share * settings.memory_mb * 2**20)
    app = module.create_app(Path(settings.home), owner, allowed_hosts=hosts, mail=mail, most=most)
    return Daemon("sandbox", "sandbox", app)


def hosts_of(settings: Settings, url: str) -> list[str]:
    """Return the Host headers a daemon answers to: loopback on its port, and the hosts of the URLs it is known by."""
    port = urlsplit(url).port
    hosts = [f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"]
    known = (url, settings.advertise_url, settings.public_url, settings.sandbox_url)
    hosts.extend(urlsplit(one).netloc for one in known if one)
    return list(dict.fromkeys(hosts))


async def assemble(
    plan: Plan, stack: AsyncExitStack, stopping: asyncio.Event, loops: list[Loop], wake: Callable[[str], None]
) -> Assembly:
    """Connect by the plan's login; add the loops by which its daemons know keys and hear of work."""
    db = await stack.enter_async_context(database(plan, stopping))
    assembly = Assembly(plan, db, stopping)
    await once_there(assembly.directory.read_keys, stopping, PATIENCE_SECONDS)
    loops.append(assembly.directory.keep_keys)
    topics: dict[str, Callable[[str], None]] = dict(assembly.heard())
    if plan.together:  # a butler in a process of its own listens to nobody, and looks
        topics |= {sessions.TOPIC: wake, notices.TOPIC: assembly.wakes[notices.TOPIC]}
    if topics:
        loops.append(partial(listen, partial(listening_dsn, plan), topics))
    return assembly
