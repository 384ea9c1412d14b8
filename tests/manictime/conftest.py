"""The records that many tests look at, made once."""

from pathlib import Path

import pytest

from butlers.modules.manictime.fixture import make
from butlers.modules.manictime.tools.screenshots import Desk
from tests.manictime.desks import desk_over


@pytest.fixture(scope="session", params=["A", "B"])
def desk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Ten days in each of the two forms, with screenshots of the last three."""
    folder = tmp_path_factory.mktemp(request.param)
    make(folder, request.param, 10)
    return desk_over(folder)


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of ten days in the form that real databases have."""
    folder = tmp_path_factory.mktemp("real")
    make(folder, "A", 10)
    return folder
