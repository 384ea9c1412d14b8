"""The forms that ManicTime's tables have been seen in, and what stands in the made-up record: groups and titles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

ACTIVITY: Final = (
    "ReportId INT NOT NULL, ActivityId INT NOT NULL, GroupId INT, GroupListId INT, CommonGroupId INT, Name TEXT, "
    "StartLocalTime DATETIME NOT NULL, StartUtcTime DATETIME NOT NULL, EndLocalTime DATETIME NOT NULL, "
    "EndUtcTime DATETIME NOT NULL"
)
GROUP: Final = (
    "ReportId INT NOT NULL, GroupId INT NOT NULL, Name TEXT, Color TEXT, Key TEXT, GroupType TEXT, CommonId INT"
)
TIMELINE: Final = "ReportId INT NOT NULL, SchemaName TEXT NOT NULL, BaseSchemaName TEXT NOT NULL"
SUMS: Final = "CommonId INT NOT NULL, Hour DATETIME NOT NULL, TotalSeconds INT NOT NULL"
BY_DAY: Final = "CommonGroupId INT NOT NULL, Day TEXT NOT NULL, TotalSeconds INT NOT NULL"
KINDS: Final = ("Application", "WebSite", "Document")
BOTH: Final = {
    "Ar_Timeline": TIMELINE,
    "Ar_Group": GROUP,
    "Ar_Activity": ACTIVITY,
    "Ar_TimelineSummary": "ReportId INT, StartLocalTime DATETIME, EndLocalTime DATETIME, "
    "ActiveStartLocalTime DATETIME, ActiveEndLocalTime DATETIME",
}
FORMS: Final[Mapping[str, Mapping[str, str]]] = {
    "A": {
        **BOTH,
        "Ar_CommonGroup": "CommonId INT NOT NULL, Name TEXT, Color TEXT, Key TEXT",
        **{f"Ar_{kind}By{span}": SUMS for kind in KINDS for span in ("Day", "Year")},
        "Ar_Environment": "EnvironmentId INT, DeviceName TEXT, OsVersion TEXT, ManicTimeVersion TEXT, "
        "RuntimeVersion TEXT",
        "Ar_GroupListItem": "ReportId INT NOT NULL, GroupListId INT NOT NULL, GroupId INT NOT NULL",
    },
    "B": {
        **BOTH,
        "Ar_CommonGroup": "CommonGroupId INT NOT NULL, Name TEXT, Color TEXT, Key TEXT",
        **{f"Ar_{kind}By{span}": BY_DAY for kind in KINDS for span in ("Day", "Year")},
        "Ar_Environment": "EnvironmentId INT, DeviceName TEXT, OsVersion TEXT, ManicTimeVersion TEXT, "
        "RuntimeVersion TEXT",
        "Ar_Tag": "TagId INT NOT NULL, Name TEXT",
        "Ar_ActivityTag": "ActivityId INT NOT NULL, TagId INT NOT NULL",
    },
    "C": {table: BOTH[table] for table in ("Ar_Timeline", "Ar_Group", "Ar_Activity")},
}
CREATE: Final = {
    (form, table): f"CREATE TABLE {table}({columns})" for form, some in FORMS.items() for table, columns in some.items()
}
INSERT: Final = {
    (form, table): f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns.split(', ')))})"
    for form, some in FORMS.items()
    for table, columns in some.items()
}
INDEXES: Final = (
    "CREATE UNIQUE INDEX ix_group ON Ar_Group(ReportId, GroupId)",
    "CREATE INDEX ix_activity ON Ar_Activity(ReportId, StartLocalTime)",
)
# B numbers activities across timelines, as its table of tags needs.
ALONE: Final = ACTIVITY.replace("ActivityId INT NOT NULL", "ActivityId INTEGER PRIMARY KEY")
CREATE_ALONE: Final = f"CREATE TABLE Ar_Activity({ALONE})"

TAGS, USAGE, APPS, DOCS, URLS, OTHER_APPS = 1, 2, 3, 4, 5, 6
EDITOR, BROWSER = 1, 2
WEB, FILES, CHAT = "ManicTime/WebSites", "ManicTime/Files", "ManicTime/Chat"


@dataclass(frozen=True, slots=True)
class Group:
    """A group of a timeline, and the number it has across timelines."""

    number: int
    name: str
    color: str
    key: str
    type: str | None = None
    common: int | None = None


APPLICATIONS: Final = (
    Group(1, "Visual Studio Code", "007ACC", "code.exe;visual studio code", None, 101),
    Group(2, "Google Chrome", "F9BA00", "chrome.exe;google chrome", None, 102),
    Group(3, "Windows Terminal", "4D4D4D", "windowsterminal.exe;terminal", None, 103),
    Group(4, "Outlook", "0F6CBD", "outlook.exe;outlook", None, 104),
)
GROUPS: Final[Mapping[int, Sequence[Group]]] = {
    USAGE: (
        Group(1, "Aktiv", "58C10C", "ManicTime/Active"),
        Group(2, "Abwesend", "F61500", "ManicTime/Away"),
        Group(3, "Sitzung gesperrt", "F61500", "ManicTime/SessionLocked"),
        Group(4, "Ausgeschaltet", "000000", "ManicTime/PowerOff"),
    ),
    APPS: APPLICATIONS,
    DOCS: (
        Group(1, "report.docx", "2B579A", "report.docx", FILES, 301),
        Group(2, "main.py", "3572A5", "main.py", FILES, 302),
        Group(3, "github.com", "24292F", "github.com", WEB, 201),
        Group(4, "docs.example.org", "118844", "docs.example.org", WEB, 202),
        Group(5, "c", "888888", "c", WEB, 203),
        Group(6, "Team chat", "5B5FC7", "team", CHAT, None),
    ),
    TAGS: (Group(1, "Client", "AA0000", "client"), Group(2, "Smith, Jones", "00AA00", "smith")),
    URLS: (
        Group(1, "github.com", "24292F", "github.com", None, 201),
        Group(2, "news.example", "990000", "n", None, 204),
    ),
    OTHER_APPS: APPLICATIONS,
}
SCHEMAS: Final = {
    TAGS: "ManicTime/Tags",
    USAGE: "ManicTime/ComputerUsage",
    APPS: "ManicTime/Applications",
    DOCS: "ManicTime/Documents",
    URLS: "ManicTime/BrowserUrls",
    OTHER_APPS: "ManicTime/Applications",
}
TITLES: Final = {
    (DOCS, 1): "C:\\Work\\report.docx",
    (DOCS, 2): "\\\\nas\\src\\main.py",
    (DOCS, 3): "https://github.com/example/repo",
    (DOCS, 4): "https://docs.example.org/guide",
    (DOCS, 5): "https://c/",
    (DOCS, 6): "Team chat",
    (URLS, 1): "https://github.com/example/repo",
    (URLS, 2): "https://news.example/today",
}
