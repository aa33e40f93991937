from __future__ import annotations

import base64
import errno
import json
import math
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from privsql.errors import IntegrityError, OperationalError, ProgrammingError
from privsql.publish.groups.units import row_units
from privsql.publish.keys.key import KeyFileError, key_name, new_key, read_key
from privsql.publish.keys.ledger import PERTURB, Accounting, Ledger, LedgerError, Loss, Publication
from privsql.publish.keys.randomness import Keyed

ROOT = Path(__file__).resolve().parents[2]
AGE = Loss("uniform", "digest-of-age", 1.5)
OTHER = Loss("uniform", "digest-of-another-retention", 0.5)


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "clinic.key.ledger", "0123456789abcdef")


# --- the key


def test_a_key_is_written_for_its_owner_and_read_back(tmp_path):
    path = tmp_path / "clinic.key"
    made = new_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_key(path) == made
    assert made.key_id == key_name(made.key)
    assert len(made.key) == 32
    assert made.warning is None
    lines = path.read_text().splitlines()
    assert lines[0].startswith("privsql publisher key")
    assert lines[1:] == [
        "version: 1",
        f"id: {made.key_id}",
        f"key: {base64.b64encode(made.key).decode()}",
    ]
    assert new_key(tmp_path / "other.key").key != made.key


def test_a_key_is_never_overwritten(tmp_path):
    path = tmp_path / "clinic.key"
    before = new_key(path)
    with pytest.raises(KeyFileError, match="never overwritten"):
        new_key(path)
    assert read_key(path).key == before.key


def test_a_key_in_no_folder_is_refused(tmp_path):
    with pytest.raises(KeyFileError, match="cannot be written"):
        new_key(tmp_path / "nowhere" / "clinic.key")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_an_open_key_file_is_a_warning_and_no_error(tmp_path, mode):
    path = tmp_path / "clinic.key"
    new_key(path)
    path.chmod(mode)
    warning = read_key(path).warning
    assert warning is not None
    assert "chmod 600" in warning


def test_a_missing_key_says_how_to_make_one(tmp_path):
    with pytest.raises(KeyFileError) as error:
        read_key(tmp_path / "clinic.key")
    assert "privsql key new" in str(error.value)
    with pytest.raises(KeyFileError, match="cannot be read"):
        read_key(tmp_path)


def corrupted(text: str) -> dict[str, str | bytes]:
    lines = text.splitlines()
    key = lines[3].removeprefix("key: ")
    changed = ("B" if key[0] != "B" else "C") + key[1:]
    return {
        "empty": "",
        "other header": text.replace("privsql publisher key", "something"),
        "newer version": text.replace("version: 1", "version: 2"),
        "no version": text.replace("version: 1\n", ""),
        "no key": "\n".join(lines[:3]),
        "no id": "\n".join([lines[0], lines[1], lines[3]]),
        "not base64": text.replace(key, "!" + key[1:]),
        "short key": text.replace(key, key[:-8]),
        "changed key": text.replace(key, changed),
        "changed id": text.replace("id: ", "id: ff"),
        "id with accents": text.replace("id: ", "id: \xe9"),
        "half a file": text[: len(text) - 20],
        "binary": bytes(range(256)) * 10,
        "far too long": text + "x" * 10_000,
    }


@pytest.mark.parametrize("how", list(corrupted("\n\n\nkey: AAAA")))
def test_a_damaged_key_is_refused_without_showing_it(tmp_path, how):
    path = tmp_path / "clinic.key"
    new_key(path)
    text = path.read_text()
    content = corrupted(text)[how]
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(KeyFileError) as error:
        read_key(path)
    secret = text.splitlines()[3].removeprefix("key: ")
    assert secret[5:20] not in f"{error.value} {error.value!r} {error.value.__cause__}"
    assert error.value.__suppress_context__ or error.value.__context__ is None


def test_line_ends_of_another_system_are_no_damage(tmp_path):
    path = tmp_path / "clinic.key"
    made = new_key(path)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert read_key(path).key == made.key


def test_a_key_is_never_shown(tmp_path):
    made = new_key(tmp_path / "clinic.key")
    secrets = [made.key.hex(), base64.b64encode(made.key).decode(), repr(made.key)[2:-1]]
    with made.ledger().locked():
        made.ledger()
        shown = f"{made!r} {made} {Keyed(made.key)!r} {made.ledger()!r}"
    assert not any(secret in shown for secret in secrets)
    assert made.key_id in shown


def test_a_key_draws_the_same_after_it_was_read_again(tmp_path):
    made = new_key(tmp_path / "clinic.key")
    units, codes = row_units(0, 10), np.zeros(10, dtype=np.int64)
    draws = [Keyed(k.key).words(units, "age", codes) for k in (made, read_key(made.path))]
    assert (draws[0] == draws[1]).all()
    assert made.ledger().path == tmp_path / "clinic.key.ledger"


# --- the ledger


def test_the_first_publication_costs_its_own_epsilons(ledger):
    found = ledger.check("patients", "id", {"age": AGE, "cost": OTHER})
    losses = {"age": 1.5, "cost": 0.5}
    assert found == Accounting(1, losses, losses, states=1)
    assert found.epsilon == 2.0
    assert str(found) == "epsilon 2 (age 1.5, cost 0.5); first publication"
    assert not ledger.path.exists(), "a check writes nothing"


def test_the_same_parameters_are_counted_once(ledger):
    for times in range(1, 4):
        assert ledger.check("patients", "id", {"age": AGE}).publications == times
        ledger.record("patients", "id", {"age": AGE}, f"release {times}")
    found = ledger.check("patients", "id", {"age": AGE})
    assert found.columns == {"age": 1.5}
    assert str(found) == "epsilon 1.5 (age 1.5); 4 in all"


def test_several_rows_a_person_have_no_epsilon(ledger):
    """Neither the publication itself nor any other of these persons, before or after it."""
    found = ledger.check("visits", "id", {"age": AGE}, rows_per_unit=4)
    assert (found.columns, found.epsilon, found.worst) == ({"age": 6.0}, math.inf, math.inf)
    assert str(found) == (
        "no epsilon: a person has up to 4 rows, which lose up to 6 together (age 6);"
        " first publication"
    )
    ledger.record("visits", "id", {"age": AGE}, "r1", rows_per_unit=4)
    assert ledger.publications()[0].rows_per_unit == 4
    later = ledger.check("patients", "id", {"cost": OTHER})
    assert (later.rows_per_unit, later.epsilon) == (4, math.inf)
    assert later.columns == {"age": 6.0, "cost": 0.5}
    assert ledger.check("pupils", "pupil", {"age": AGE}).epsilon == 1.5  # other persons
    changed = ledger.check("visits", "id", {"age": replace(AGE, state="b")}, rows_per_unit=2)
    assert changed.columns == {"age": 6.0}
    assert "epsilon" not in changed.change()


def test_lines_of_one_row_a_person_are_written_as_ever(ledger):
    ledger.record("patients", "id", {"age": AGE}, "r1")
    assert "rows_per_unit" not in ledger.path.read_text()
    for wrong in ("0", "-1", '"x"'):
        line = ledger.path.read_text().replace("{", f'{{"rows_per_unit": {wrong}, ', 1)
        with pytest.raises(ValueError, match=r"at least one row|invalid literal"):
            Publication.from_json(line)


def test_other_parameters_are_refused_or_add_up(ledger):
    ledger.record("patients", "id", {"age": AGE}, "r1")
    with pytest.raises(LedgerError, match="age of the same persons") as error:
        ledger.check("patients", "id", {"age": OTHER})
    assert isinstance(error.value, ProgrammingError)
    assert (error.value.code, error.value.sqlstate) == ("ledger", "42501")
    assert "--accept-loss" in str(error.value)
    found = ledger.check("patients", "id", {"age": OTHER}, accept_loss=True)
    assert (found.columns, found.publications) == ({"age": 2.0}, 2)
    ledger.record("patients", "id", {"age": OTHER}, "r2")
    # Both draws are out now: repeating either costs nothing more.
    assert ledger.check("patients", "id", {"age": AGE}).epsilon == 2.0
    assert ledger.check("patients", "id", {"age": OTHER}).epsilon == 2.0


def test_earlier_columns_stay_in_the_total(ledger):
    ledger.record("patients", "id", {"age": AGE}, "r1")
    found = ledger.check("patients", "id", {"cost": OTHER})
    assert (found.columns, found.epsilon) == ({"age": 1.5, "cost": 0.5}, 2.0)


@pytest.mark.parametrize(
    ("table", "unit", "column"),
    [
        ("patients", "ssn", "age"),  # other units for the same persons
        ("patients", "row", "age"),
        ("PATIENTS", "id", "AGE"),  # SQL does not care for case
        ("visits", "ID", "age"),  # the same persons in another table
    ],
)
def test_the_same_persons_are_recognised(ledger, table, unit, column):
    ledger.record("patients", "id", {"age": AGE}, "r1")
    with pytest.raises(LedgerError):
        ledger.check(table, unit, {column: OTHER})


def test_other_spellings_of_the_same_publication_repeat_it(ledger):
    ledger.record("patients", "id", {"age": AGE}, "r1")
    assert ledger.check("Patients", "ID", {"Age": AGE}).epsilon == 1.5


def test_a_new_unit_for_the_same_table_is_a_new_draw(ledger):
    ledger.record("patients", "id", {"age": AGE}, "r1")
    with pytest.raises(LedgerError, match="another unit"):
        ledger.check("patients", "ssn", {"age": AGE})


def test_other_persons_are_not_counted(ledger):
    ledger.record("patients", "id", {"age": AGE}, "r1")
    ledger.record("births", "row", {"age": AGE}, "r2")
    assert ledger.check("pupils", "pupil", {"age": OTHER}).publications == 1
    assert ledger.check("deaths", "row", {"age": OTHER}).publications == 1


def test_where_a_row_is_a_person_a_changed_source_draws_anew(ledger):
    ledger.record("patients", "row", {"age": AGE}, "r1", source="monday")
    assert ledger.check("patients", "row", {"age": AGE}, source="monday").epsilon == 1.5
    with pytest.raises(LedgerError, match="changed source"):
        ledger.check("patients", "row", {"age": AGE}, source="tuesday")
    found = ledger.check("patients", "row", {"age": AGE}, source="tuesday", accept_loss=True)
    assert found.epsilon == 3.0
    ledger.record("people", "id", {"age": AGE}, "r1", source="monday")
    assert ledger.check("people", "id", {"age": AGE}, source="tuesday").epsilon == 1.5


def at(state: str, loss: Loss = AGE) -> dict[str, Loss]:
    return {"age": replace(loss, state=state)}


def test_states_of_the_source_are_counted_once_each(ledger):
    """Monday twice and a changed Tuesday: whoever changed was drawn for twice, not thrice."""
    for state, states in (("monday", 1), ("monday", 1), ("tuesday", 2), ("monday", 2)):
        found = ledger.check("patients", "id", at(state))
        assert (found.states, found.epsilon, found.worst) == (states, 1.5, states * 1.5)
        assert (found.change() is None) == (states == 1)
        ledger.record("patients", "id", at(state), f"release on {state}")
    assert found.publications == 4
    assert found.change() == (
        "the source changed: 2 different states of it under this key; epsilon up to 3 (age 3) for"
        " a person whose values changed every time, and the changes may be visible"
    )


def test_states_count_for_each_channel_on_its_own(ledger):
    ledger.record("patients", "id", at("monday"), "r1")
    ledger.record("patients", "id", at("monday", OTHER), "r2")
    found = ledger.check("patients", "id", at("tuesday"))
    # Twice by the first channel, once by the other.
    assert (found.states, found.epsilon, found.worst) == (2, 1.5 + 0.5, 2 * 1.5 + 0.5)


def test_a_state_in_another_table_of_the_same_persons_counts(ledger):
    ledger.record("patients", "id", at("monday"), "r1")
    assert ledger.check("visits", "ID", at("tuesday")).states == 2
    assert ledger.check("pupils", "pupil", at("tuesday")).states == 1


def test_an_unknown_state_is_taken_for_another(ledger):
    """Lines of an older ledger, and streams that broke off."""
    ledger.record("patients", "id", {"age": AGE}, "r1")
    ledger.record("patients", "id", {"age": AGE}, "r2")
    assert ledger.check("patients", "id", at("monday")).states == 3
    line = json.loads(ledger.path.read_text().splitlines()[0])
    del line["kind"], line["complete"], line["columns"]["age"]["state"]
    ledger.path.write_text(json.dumps(line) + "\n")
    assert ledger.check("patients", "id", at("monday")).states == 2


def test_a_line_that_is_not_complete_gives_way_to_the_one_that_is(ledger):
    ledger.record("visits", "id", {"age": AGE}, "b1", kind=PERTURB, complete=False)
    ledger.record("visits", "id", {"age": AGE}, "b2", kind=PERTURB, complete=False)
    found = ledger.check("visits", "id", at("monday"))
    assert (found.publications, found.states) == (3, 3)
    # Its own first line is no publication besides it.
    found = ledger.check("visits", "id", at("monday"), release="b1")
    assert (found.publications, found.states) == (2, 2)
    ledger.record("visits", "id", at("monday"), "b1", kind=PERTURB)
    found = ledger.check("visits", "id", at("monday"))
    assert (found.publications, found.states) == (3, 2)


def test_another_key_draws_anew(ledger):
    ledger.record("patients", "id", {"age": AGE}, "r1")
    with pytest.raises(LedgerError, match="another key"):
        Ledger(ledger.path, "fedcba9876543210").check("patients", "id", {"age": AGE})


def test_infinite_losses_are_kept(ledger):
    swap = Loss("swap", "d", math.inf)
    ledger.record("patients", "id", {"job": swap, "age": AGE}, "r1")
    found = ledger.check("patients", "id", {"job": swap, "age": AGE})
    assert found.columns == {"job": math.inf, "age": 1.5}
    assert found.epsilon == math.inf
    json.loads(ledger.path.read_text(), parse_constant=pytest.fail)


@pytest.mark.parametrize("epsilon", [-1.0, math.nan])
def test_a_loss_cannot_lower_the_total(epsilon):
    with pytest.raises(ValueError, match="at least 0"):
        Loss("uniform", "d", epsilon)


def test_a_line_says_what_was_published_and_nothing_else(ledger):
    entry = ledger.record("patients", 'i"d', {"a\nge": AGE}, "r1")
    text = ledger.path.read_text()
    assert text.count("\n") == 1
    assert set(json.loads(text)) == {
        *("time", "table", "release", "unit", "columns", "key_id", "source", "kind", "complete")
    }
    assert Publication.from_json(text) == entry
    assert ledger.publications() == [entry]
    assert ledger.path.stat().st_mode & 0o777 == 0o600


def test_a_line_that_was_never_finished_is_ignored_and_replaced(ledger):
    ledger.record("patients", "id", {"age": AGE}, "r1")
    whole = ledger.path.read_bytes()
    for cut in range(1, len(whole) - 1):
        ledger.path.write_bytes(whole + whole[:cut])
        assert len(ledger.publications()) == 1
    ledger.record("patients", "id", {"age": AGE}, "r2")
    assert [entry.release for entry in ledger.publications()] == ["r1", "r2"]


def test_a_line_that_only_lacks_its_end_counts(ledger):
    ledger.record("patients", "id", {"age": AGE}, "r1")
    ledger.path.write_bytes(ledger.path.read_bytes()[:-1])
    assert len(ledger.publications()) == 1
    ledger.record("patients", "id", {"age": AGE}, "r2")
    assert [entry.release for entry in ledger.publications()] == ["r1", "r2"]
    assert ledger.path.read_bytes().count(b"\n") == 2


@pytest.mark.parametrize(
    "line", [b"{}", b"[]", b"1", b"", b"garbage", b"\xff\xfe", b'{"columns": {"a": 1}}', b"null"]
)
def test_a_damaged_line_is_an_error(ledger, line):
    ledger.record("patients", "id", {"age": AGE}, "r1")
    ledger.path.write_bytes(line + b"\n" + ledger.path.read_bytes())
    before = ledger.path.read_bytes()
    with pytest.raises(IntegrityError, match="line 1 of the ledger"):
        ledger.check("patients", "id", {"age": AGE})
    with pytest.raises(IntegrityError):
        ledger.record("patients", "id", {"age": AGE}, "r2")
    assert ledger.path.read_bytes() == before


def test_a_ledger_that_cannot_be_used_is_an_error_of_ours(tmp_path):
    with pytest.raises(OperationalError, match="cannot be used"):
        Ledger(tmp_path / "nowhere" / "x", "k").record("t", "id", {"age": AGE}, "r")


def test_a_full_disk_leaves_a_ledger_that_can_be_read(ledger, monkeypatch):
    ledger.record("patients", "id", {"age": AGE}, "r1")
    write, calls = os.write, []

    def full(descriptor, data):
        calls.append(data)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[:30])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OperationalError, match="No space left"):
        ledger.record("patients", "id", {"age": AGE}, "r2")
    monkeypatch.undo()
    ledger.record("patients", "id", {"age": AGE}, "r3")
    assert [entry.release for entry in ledger.publications()] == ["r1", "r3"]


def test_two_publishers_do_not_interleave(ledger):
    with ledger.locked():
        ledger.check("patients", "id", {"age": AGE})
        other = Ledger(ledger.path, ledger.key_id)
        with pytest.raises(OperationalError, match="is running"), other.locked():
            pass
        ledger.record("patients", "id", {"age": AGE}, "r1")
        assert len(ledger.publications()) == 1
    with other.locked():
        assert len(other.publications()) == 1


def test_errors_inside_of_the_lock_pass_through_and_free_it(ledger):
    with pytest.raises(FileNotFoundError), ledger.locked():
        raise FileNotFoundError("the source, not the ledger")
    with ledger.locked():
        pass


APPEND = """
import sys
from privsql.publish.keys.ledger import Ledger, Loss

path, who = sys.argv[1:]
ledger, age = Ledger(path, "key" + who), {"age": Loss("uniform", "d", 1.5)}
for k in range(25):
    if k % 2:
        ledger.record("patients", "id", age, f"{who}-{k}")
        continue
    with ledger.locked(wait=True):
        before = len(ledger.publications())
        ledger.record("patients", "id", age, f"{who}-{k}")
        assert len(ledger.publications()) == before + 1
"""


def test_four_processes_append_without_losing_a_line(ledger):
    commands = [[sys.executable, "-c", APPEND, str(ledger.path), str(who)] for who in range(4)]
    running = [subprocess.Popen(command, cwd=ROOT) for command in commands]
    assert [process.wait(timeout=120) for process in running] == [0] * 4
    releases = [entry.release for entry in ledger.publications()]
    assert sorted(releases) == sorted(f"{who}-{k}" for who in range(4) for k in range(25))


def test_errors_survive_a_process_boundary():
    assert isinstance(pickle.loads(pickle.dumps(LedgerError("x"))), LedgerError)
