# SPDX-License-Identifier: Apache-2.0
import pytest

import programs


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true",
                     help="run what takes minutes, too")


def pytest_configure(config):
    config.addinivalue_line("markers", "long: runs with --long only")
    config.addinivalue_line(
        "markers", "hostile: strange bytes, floods, files that change under "
        "the server; ./run test runs these under asan, too")
    # recps's own are tested where they are meant; xdist cannot carry a class
    # of a package that its main process does not have
    for words in ("TF_CONFIG", "left out"):
        config.addinivalue_line("filterwarnings", f"ignore:{words}:UserWarning")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--long"):
        return
    skip = pytest.mark.skip(reason="takes long; --long runs it")
    for item in items:
        if "long" in item.keywords:
            item.add_marker(skip)


@pytest.fixture
def recpsd():
    """A server of its own, without a cluster."""
    if not programs.RECPSD.is_file():
        pytest.skip(f"{programs.RECPSD} is not built")
    with programs.Recpsd() as server:
        yield server
        # what the test did must not keep it from a clean end; under a
        # sanitizer this is where a leak or a race would show in the code
        if server.process.poll() is None:
            # 0: a SHUTDOWN was there first
            assert server.stop() in (0, 143), server.log()
