"""Every driver against privsql and PostgreSQL side by side: the parity table of docs/drivers.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fronts.pgwire.clients import matrix
from tests.fronts.pgwire.clients.drivers import DRIVERS, packages
from tests.fronts.pgwire.clients.servers import BINARIES

PAGE = Path(__file__).parents[4] / "docs" / "drivers.md"


def test_every_driver_has_its_program_and_its_row_on_the_page():
    listed = [line.split(" | ")[0].removeprefix("| ") for line in PAGE.read_text().splitlines()]
    for driver in DRIVERS:
        assert (matrix.CHECKS / driver.program).exists()
        assert driver.name in listed
    assert {"libdbd-pg-perl", "postgresql"} <= set(packages())


def test_a_difference_and_a_silent_program_are_failures():
    good = matrix.outcome('{"check": "in", "value": 858}\n')
    other = matrix.outcome('{"check": "in", "value": 857}\n')
    assert not matrix.compared("x", good, good).failed
    assert matrix.compared("x", good, other).differing == ("in",)
    # Equal on both and wrong all the same.
    assert matrix.compared("x", other, other).failed
    assert matrix.compared("x", matrix.outcome(""), matrix.outcome("")).failed
    ended = matrix.outcome('{"check": "in", "value": 858}\n', "exit code 1")
    assert matrix.compared("x", good, ended).differing == ("program",)
    silent = matrix.compared("x", good, matrix.outcome('{"check": "other", "value": 1}'))
    assert silent.differing == ("in", "other")


def test_a_driver_that_cannot_be_installed_is_a_row_with_its_error(tmp_path):
    absent = matrix.Driver("absent", "psql_.py", pip=("no such package",))
    with pytest.raises(matrix.InstallationError, match="no such package"):
        matrix.Scratch(tmp_path).command(absent)
    row = matrix.Row("absent", missing="pip: no such package")
    assert matrix.markdown(matrix.cells(row)).endswith("| pip: no such package |")
    assert not row.failed


@pytest.mark.soak
def test_drivers_agree(request):
    """Prints the table; a driver that could not be installed is a row of it."""
    assert BINARIES.exists(), "Debian's postgresql is not installed"
    folder = Path(request.config.cache.mkdir("wire-drivers"))
    found = []
    for row in matrix.rows(DRIVERS, folder):
        found.append(row)
        print(matrix.laid(matrix.cells(row)))
    wrong = [detail for row in found for detail in (row.driver, *row.details) if row.failed]
    assert not wrong, "\n".join(wrong)
