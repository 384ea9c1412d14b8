"""Screenshots: which there are, what is shown to whom, what is cut, and what is saved where."""

import asyncio
import base64
import io
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from mcp_types import ImageContent, ListRootsRequest, ListRootsResult, ResourceLink, Root
from PIL import Image

from butlers.modules.manictime.fixture import Record
from butlers.modules.manictime.forms import APPS
from butlers.modules.manictime.tools.screenshots import Desk
from tests.manictime.desks import TWO, Said, asked, at, desk_over, recorded, refused, result

pytestmark = pytest.mark.asyncio
DAYS = {"startDate": "2025-01-20", "endDate": "2025-01-23"}
NINE = "2025-01-15_09-00-00_01-00_640_360_1_0"


def jpeg(width: int = 640, height: int = 360) -> bytes:
    made = io.BytesIO()
    Image.new("RGB", (width, height), (9, 99, 9)).save(made, "JPEG")
    return made.getvalue()


def laid(folder: Path, *names: str, raw: bytes | None = None) -> Desk:
    """A desk over an empty record and these screenshots."""
    day = folder / "Screenshots" / "2025-01-15"
    day.mkdir(parents=True, exist_ok=True)
    for name in names:
        (day / name).write_bytes(jpeg() if raw is None else raw)
    return recorded(folder, Record("A"))


async def listed(desk: Desk, **said: Said) -> list[dict[str, Any]]:
    return list((await asked(desk, "list_screenshots", **{**TWO, **said}))["screenshots"])


async def first(desk: Desk) -> str:
    return str((await listed(desk, **DAYS))[0]["screenshotRef"])


def pictures(blocks: Iterable[object]) -> list[tuple[Image.Image, list[str]]]:
    """The pictures, and for whom they are."""
    return [
        (Image.open(io.BytesIO(base64.b64decode(one.data))), list(one.annotations.audience or ()))
        for one in blocks
        if isinstance(one, ImageContent) and one.annotations
    ]


@pytest.mark.parametrize(
    ("name", "timestamp"),
    [
        ("2025-01-15_21-58-16_08-00_1704_1341_755811_0.jpg", "2025-01-15T21:58:16+08:00"),
        ("2025-01-15_21-58-16_+08-00_1704_1341_755811_0.JPG", "2025-01-15T21:58:16+08:00"),
        ("2025-01-15_21-58-16_-05-00_1704_1341_755811_1.jpeg", "2025-01-15T21:58:16-05:00"),
    ],
)
async def test_names_are_read_with_any_offset(tmp_path: Path, name: str, timestamp: str) -> None:
    [one] = await listed(laid(tmp_path, name))
    assert (one["timestamp"], one["width"], one["height"]) == (timestamp, 1704, 1341)
    assert one["displayLocalTime"] == "2025-01-15 21:58:16"


@pytest.mark.parametrize(
    "name", ["holiday.jpg", "2025-02-30_09-00-00_01-00_1_1_1_0.jpg", f"{NINE}.png", f"x{NINE}.jpg"]
)
async def test_other_files_are_none(tmp_path: Path, name: str) -> None:
    assert await listed(laid(tmp_path, name)) == []


async def test_one_capture_is_listed_once_and_each_of_a_second_apart(tmp_path: Path) -> None:
    desk = laid(tmp_path, f"{NINE}.jpg", f"{NINE}.thumbnail.jpg", NINE[:-1] + "1.jpg", NINE[:-3] + "2_0.thumbnail.jpg")
    made = await listed(desk)
    assert sorted(one["hasThumbnail"] for one in made) == [False, True, True]
    assert len({one["screenshotRef"] for one in made}) == 3


async def test_what_is_listed_has_no_picture_but_links(desk: Desk) -> None:
    made = await result(desk, "list_screenshots", **DAYS, maxCount=3)
    links = [one for one in made.blocks if isinstance(one, ResourceLink)]
    assert len(links) == len(made.blocks) == 3
    assert made.answer is not None
    assert [one.uri for one in links] == [one["resourceUri"] for one in made.answer["screenshots"]]  # type: ignore[attr-defined]
    assert all(one.name.startswith("Screenshot 2025-01-2") and one.mime_type == "image/jpeg" for one in links)


async def test_a_hundred_at_most_and_spread_over_the_time(tmp_path: Path) -> None:
    names = [f"2025-01-15_{n // 60:02}-{n % 60:02}-00_01-00_640_360_{n}_0.jpg" for n in range(0, 1440, 7)]
    desk = laid(tmp_path, *names, raw=b"")
    made = await asked(desk, "list_screenshots", **TWO, maxCount=999, samplingStrategy="interval")
    assert 50 < len(made["screenshots"]) <= 100
    assert made["truncation"]["truncated"]
    assert made["truncation"]["totalAvailable"] == len(names)
    assert made["screenshots"][-1]["displayLocalTime"] > "2025-01-15 20"
    assert await refused(desk, "list_screenshots", **TWO, maxCount=0) == "limit_out_of_range"
    assert await refused(desk, "list_screenshots", **TWO, samplingStrategy="x") == "invalid_sampling_strategy"


async def test_of_transitions_the_nearest_is_chosen(tmp_path: Path) -> None:
    names = [f"2025-01-15_09-{n:02}-00_01-00_640_360_{n}_0.jpg" for n in range(30)]
    desk = laid(tmp_path, *names)
    record = Record("A")
    record.add(APPS, 1, at(9), 600)
    record.add(APPS, 1, at(9, 10), 600, title="another window")
    record.add(APPS, 3, at(9, 20), 600)
    recorded(tmp_path, record)
    made = await asked(desk, "list_screenshots", **TWO)
    assert [one["displayLocalTime"][11:16] for one in made["screenshots"]] == ["09:00", "09:20"]
    assert made["sampling"] == "activity_transition"
    quiet = await asked(desk, "list_screenshots", startDate="2025-01-15T09:21", endDate="2025-01-15T09:40")
    assert quiet["sampling"] == "activity_transition"
    recorded(tmp_path, Record("A"))
    assert (await asked(desk, "list_screenshots", **TWO))["sampling"] == "interval"


async def test_why_there_is_none_is_said(tmp_path: Path) -> None:
    reasons = []
    desk = recorded(tmp_path, Record("A"))
    for step in ("absent", "empty", "earlier", "later"):
        if step == "empty":
            (tmp_path / "Screenshots").mkdir()
        if step == "earlier":
            laid(tmp_path, f"{NINE}.jpg")
        day = {"startDate": "2025-01-16", "endDate": "2025-01-17"}
        if step == "earlier":
            day = {"startDate": "2025-01-13", "endDate": "2025-01-14"}
        made = await asked(desk, "list_screenshots", **day)
        assert made["diagnostics"]["remediationHint"]
        reasons.append(made["diagnostics"]["reasonCode"].removeprefix("Screenshots"))
    assert reasons == ["CaptureDisabled", "Retention", "Retention", "Unknown"]


async def test_the_model_gets_the_thumbnail_and_the_person_the_whole(desk: Desk) -> None:
    made = await result(desk, "get_screenshot", screenshotRef=await first(desk))
    [(small, both), (whole, person)] = pictures(made.blocks)
    assert (small.size, both) == ((320, 180), ["user", "assistant"])
    assert (whole.size, person) == ((640, 360), ["user"])
    linking = desk_over(Path(str(desk.source.place.data)), full_image="link")
    blocks = (await result(linking, "get_screenshot", screenshotRef=await first(desk))).blocks
    assert [block.type for block in blocks] == ["image", "resource_link"]


async def test_one_variant_is_for_both_and_none_is_an_error(tmp_path: Path) -> None:
    desk = laid(tmp_path, f"{NINE}.jpg")
    [one] = await listed(desk)
    ref = one["screenshotRef"]
    [(_, both)] = pictures((await result(desk, "get_screenshot", screenshotRef=ref)).blocks)
    assert both == ["user", "assistant"]
    for raw in (b"", jpeg()[:300], jpeg()[:-1000], b"GIF89a", huge()):
        laid(tmp_path, f"{NINE}.jpg", raw=raw)
        assert await refused(desk, "get_screenshot", screenshotRef=ref) == "file_unavailable"
        assert (
            await refused(desk, "crop_screenshot", screenshotRef=ref, x=0, y=0, width=9, height=9) == "file_unavailable"
        )


def huge() -> bytes:
    """A picture of 200 megapixels, as its first bytes say."""
    raw = bytearray(jpeg())
    at_size = raw.index(b"\xff\xc0") + 5
    raw[at_size : at_size + 4] = (10_000).to_bytes(2, "big") + (20_000).to_bytes(2, "big")
    return bytes(raw)


async def test_refs_survive_a_restart_and_unknown_ones_are_refused(desk: Desk) -> None:
    ref = await first(desk)
    again = desk_over(Path(str(desk.source.place.data)))
    assert await asked(again, "get_screenshot", screenshotRef=ref)
    for wrong in ("", "x" * 22, "../../etc/passwd", ref + "x", "\ud800", 7):
        code = await refused(again, "get_screenshot", screenshotRef=wrong)
        assert code == ("validation_error" if wrong == 7 else "unknown_screenshot_ref")


async def test_no_link_and_no_sibling_is_read(tmp_path: Path) -> None:
    desk = laid(tmp_path / "data", f"{NINE}.jpg")
    [one] = await listed(desk)
    evil = tmp_path / "data" / "Screenshots-evil" / "2025-01-15"
    evil.mkdir(parents=True)
    (evil / (NINE[:-1] + "5.jpg")).write_bytes(jpeg())
    (tmp_path / "data/Screenshots/2025-01-15" / (NINE[:-1] + "6.jpg")).symlink_to(evil / (NINE[:-1] + "5.jpg"))
    (tmp_path / "data/Screenshots/2025-01-16").symlink_to(evil)
    assert [shot["screenshotRef"] for shot in await listed(desk)] == [one["screenshotRef"]]
    path = tmp_path / "data/Screenshots/2025-01-15" / f"{NINE}.jpg"
    path.unlink()
    path.symlink_to(evil / (NINE[:-1] + "5.jpg"))  # after it was listed
    code = await refused(desk, "get_screenshot", screenshotRef=one["screenshotRef"])
    assert code in {"file_unavailable", "unknown_screenshot_ref"}


@pytest.mark.parametrize(
    ("box", "size", "color"),
    [
        ({"x": 0, "y": 0, "width": 100, "height": 100}, (640, 360), (200, 40, 40)),
        ({"x": 50, "y": 0, "width": 50, "height": 50}, (320, 180), (40, 160, 40)),
        ({"x": 50, "y": 50, "width": 500, "height": 500}, (320, 180), (220, 200, 40)),
        ({"x": -25, "y": -25, "width": 50, "height": 50}, (160, 90), (200, 40, 40)),
        ({"x": 0, "y": 0.5, "width": 0.5, "height": 0.5, "coordinateUnits": "normalized"}, (320, 180), (40, 40, 200)),
    ],
)
async def test_the_box_is_cut_from_the_whole_picture(desk: Desk, box: Said, size: Said, color: Said) -> None:
    made = await result(desk, "crop_screenshot", screenshotRef=await first(desk), **box)
    [(part, audience)] = pictures(made.blocks)
    assert (part.size, audience) == (size, ["user", "assistant"])
    found = part.getpixel((size[0] // 4, size[1] // 4))
    assert isinstance(found, tuple)
    assert max(abs(one - other) for one, other in zip(found, color, strict=True)) < 12
    assert made.answer is not None
    assert made.answer["pixelRect"]["width"] == size[0]  # type: ignore[index]  # of an object


@pytest.mark.parametrize(
    ("box", "code"),
    [
        ((0, 0, 0, 10), "invalid_coordinates"),
        ((0, 0, -5, 10), "invalid_coordinates"),
        ((float("nan"), 0, 5, 10), "invalid_coordinates"),
        ((0, 0, float("inf"), 10), "invalid_coordinates"),
        ((100, 0, 5, 10), "crop_failed"),
        ((-50, 0, 50, 10), "crop_failed"),
        ((0, 0, 1e-9, 10), "crop_failed"),
        (("1", 0, 5, 10), "validation_error"),
    ],
)
async def test_a_box_that_is_none_is_refused(desk: Desk, box: tuple[Said, ...], code: str) -> None:
    said = dict(zip(("x", "y", "width", "height"), box, strict=True))
    assert await refused(desk, "crop_screenshot", screenshotRef=await first(desk), **said) == code


async def saved(desk: Desk, root: Path | None, **said: Said) -> Any:  # noqa: ANN401  # a path, or a code
    """Where it was saved, the client having declared this root; or the code of the refusal."""
    roots = [Root(uri=root.as_uri(), name="r")] if root else []  # type: ignore[arg-type]  # a URI
    given = {"offers": frozenset({"roots"}), "inputs": {"roots": ListRootsResult(roots=roots)}}
    ref = await first(desk)
    tool = await result(desk, "save_screenshot", **given, screenshotRef=ref, **said)
    if tool.is_error:
        return await refused(desk, "save_screenshot", **given, screenshotRef=ref, **said)
    assert tool.answer is not None
    path = Path(str(tool.answer["path"]))
    assert len(await asyncio.to_thread(path.read_bytes)) == tool.answer["size"]
    return path


async def test_a_client_is_asked_for_its_roots(desk: Desk) -> None:
    made = await result(desk, "save_screenshot", frozenset({"roots"}), screenshotRef=await first(desk))
    assert [type(one) for one in made.asks.values()] == [ListRootsRequest]


async def test_it_is_saved_in_the_root_and_over_nothing(desk: Desk, tmp_path: Path) -> None:
    usual = await saved(desk, tmp_path)
    assert usual.name == "screenshot-2025-01-20-082020.jpg"
    assert await saved(desk, tmp_path) == usual  # the same bytes are there
    usual.write_bytes(b"another")
    assert (await saved(desk, tmp_path)).name == "screenshot-2025-01-20-082020-1.jpg"
    assert usual.read_bytes() == b"another"
    assert await saved(desk, tmp_path, outputPath="a/b/shot") == tmp_path / "a/b/shot.jpg"
    png = await saved(desk, tmp_path, outputPath="shot.png", cropX=50, cropY=0, cropWidth=50, cropHeight=50)
    with Image.open(png) as picture:
        assert (picture.format, picture.size) == ("PNG", (320, 180))


async def test_nothing_is_written_outside_of_the_root(desk: Desk, tmp_path: Path) -> None:
    root, other = tmp_path / "root", tmp_path / "root-evil"
    root.mkdir()
    other.mkdir()
    (root / "link").symlink_to(other)
    (root / "taken.jpg").symlink_to(other / "taken.jpg")
    for path in ("../x.jpg", "../root-evil/x.jpg", str(other / "x.jpg"), "link/x.jpg", "taken.jpg", "a/../../x.jpg"):
        assert await saved(desk, root, outputPath=path) == "path_outside_roots", path
    assert await saved(desk, root, outputPath="shot.exe") == "extension_not_allowed"
    assert await saved(desk, root, outputPath="a\0b.jpg") in {"path_outside_roots", "save_failed"}
    assert await saved(desk, root, cropX=1) == "invalid_coordinates"
    assert await saved(desk, None) == "roots_unavailable"
    assert list(other.iterdir()) == []
    (root / "file").write_bytes(b"x")
    assert await saved(desk, root, outputPath="file/x.jpg") == "save_failed"


async def test_the_owners_folders_bound_those_of_the_client(desk: Desk, tmp_path: Path) -> None:
    data, ours = Path(str(desk.source.place.data)), tmp_path / "ours"
    bound = desk_over(data, roots=[ours])
    assert await saved(bound, tmp_path / "theirs") == "roots_unavailable"
    assert (await saved(bound, ours / "sub")).parent == ours / "sub"
    assert (await saved(bound, tmp_path)).parent == ours
    alone = await asked(bound, "save_screenshot", screenshotRef=await first(desk))  # a client without roots
    assert Path(alone["path"]).parent == ours
    assert await refused(desk, "save_screenshot", screenshotRef=await first(desk)) == "roots_unavailable"


async def test_without_pillow_it_is_said_what_to_install(real: Path) -> None:
    program = (
        "import asyncio, sys; sys.modules['PIL'] = None\n"
        "from pathlib import Path\n"
        "from tests.manictime.desks import asked, refused, desk_over\n"
        f"desk = desk_over(Path({str(real)!r}))\n"
        "async def run():\n"
        f"    made = await asked(desk, 'list_screenshots', **{DAYS!r})\n"
        "    ref = made['screenshots'][0]['screenshotRef']\n"
        "    print(await refused(desk, 'get_screenshot', screenshotRef=ref))\n"
        "asyncio.run(run())\n"
    )
    root = Path(__file__).parents[2]
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=root, check=False)  # noqa: ASYNC221
    assert ran.stdout.strip() == "pillow_missing", ran.stderr
