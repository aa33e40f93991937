"""The real shell on a real (pseudo-)terminal: keys in, a screen out."""

from __future__ import annotations

import re
import stat

import pytest

from tests.fronts.shell.screen import CTRL_C, CTRL_D, ENTER, TAB, UP, Terminal, privsql

FLU = "SELECT count(*) AS n FROM patients WHERE disease = 'flu'"
PERSONAL = f"{FLU} AND job = 'eng' AND gender = 'F' AND favourite = 'flu'"
WIDE = "SELECT " + ", ".join(f"{i} AS quite_a_long_name_{i}" for i in range(8))
# Reconstructs thousands of states in each of a hundred groups, for many minutes.
SLOW = (
    "SELECT WITH RECONSTRUCTION OPTIONS (estimator = 'iterative') cost, age, disease, count(*)"
    " FROM patients GROUP BY ALL"
)
COLOUR = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[0-9;]*)?m")


def test_a_statement_over_several_lines_is_answered_with_its_errors(shell):
    said = shell.ask(f"SELECT disease, count(*) AS n{ENTER}FROM patients{ENTER}GROUP BY disease;")
    assert "\n      -> FROM patients\n      -> GROUP BY disease;\n" in said
    assert re.search(r"^ none +\| 2,\d{3} ± 1\d\d$", said, re.M)
    assert "4 rows; estimates by inversion, errors at 95%" in said
    assert COLOUR.search(shell.raw.decode())


def test_several_statements_on_a_line(shell):
    said = shell.ask("SELECT 11 AS one; SELECT ';' AS two;")
    assert "11" in said
    assert re.search(r"^ two\n-+\n ;$", said, re.M)


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("EXPL", "EXPLAIN RECONSTRUCTION"),
        ("SELECT 1 quali", "SELECT 1 qualify"),
        ("SELECT count(*) FROM PAT", "FROM patients"),
        ("SELECT GEN", "SELECT gender"),
        ("SELECT count(*) FROM patients AS p WHERE p.fav", "p.favourite"),
        (f"{FLU[:-4]}H", "disease = 'hiv'"),
        ("SELECT count(*) FROM patients WHERE disease IN ('flu', 'no", "('flu', 'none'"),
        ("SELECT privsql_st", "privsql_stderr("),
        ("SET privsql.con", "SET privsql.confidence_level"),
        ("SET privsql.estimator = 'it", "= 'iterative'"),
        ("\\ti", "\\timing"),
        ("\\d pa", "\\d patients"),
    ],
)
def test_tab_completes(shell, typed, completed):
    shell.send(typed + TAB)
    shell.until(completed)
    shell.send(CTRL_C)
    shell.ready()


def test_tab_offers_a_menu_and_enter_takes_from_it(shell):
    shell.send(f"{FLU[:-5]}'" + TAB)
    shell.until(lambda text: all(each in text for each in ("'flu'", "'hiv'", "'none'", "value")))
    shell.send(TAB + TAB)
    shell.until("disease = 'hiv'")
    shell.send(ENTER)
    shell.until(lambda text: "'none'" not in text)
    assert "1 row" in shell.ask(";")


def test_describing_tables(shell):
    assert re.search(r"^ patients \| published \| 7 +\| 4,000$", shell.ask("\\d"), re.M)
    said = shell.ask("\\d patients")
    assert re.search(r"^ job +\| public +\| VARCHAR +\|", said, re.M)
    assert re.search(r"^ cost +\| public, measure", said, re.M)
    assert re.search(r"^ disease .*\| uniform +\| 0.5 +\| 'flu', 'hiv', 'none', NULL$", said, re.M)
    assert re.search(r"^ age .*\| 0 to 120$", said, re.M)
    assert "privsql_" not in said
    assert "personal groups: refuse; at least 10 rows" in said
    assert "there is no such table" in shell.ask("\\d nobody")


def test_timing_and_expanded_display(shell):
    shell.ask("\\timing")
    assert re.search(r"^Time: [\d.]+ m?s$", shell.ask("SELECT 1;"), re.M)
    assert "Timing is off." in shell.ask("\\timing")
    assert "Time:" not in shell.ask("SELECT 1;")
    shell.ask("\\x")
    assert "-[ 1 ]---" in shell.ask("SELECT 1 AS one;")
    assert "Expanded display is automatic" in shell.ask("\\x")
    assert "-[ 1 ]" not in shell.ask("SELECT 1 AS one;")


def test_settings(shell):
    shell.ask("SET privsql.error_bars = true;")
    assert re.search(r"n +\| n_stderr \| n_low \| n_high \| n_reliable", shell.ask(f"{FLU};"))
    assert re.search(r"^ privsql.error_bars +\| true$", shell.ask("\\set"), re.M)
    assert re.search(r"^ true$", shell.ask("SHOW privsql.error_bars;"), re.M)
    shell.ask("RESET privsql.error_bars;")
    assert "n_stderr" not in shell.ask(f"{FLU};")
    said = shell.ask("SET privsql.confidence_level = 7;")
    assert "a number between 0 and 1" in said
    assert "HINT: for example 0.95" in said


def test_rows_that_are_shown(shell):
    ages = "SELECT age, count(*) AS n FROM patients GROUP BY age ORDER BY age;"
    said = shell.ask(ages)
    assert "121 rows, 40 shown; estimates" in said
    assert "\\rows shows more" in said
    shell.ask("\\rows all")
    shell.clear()
    assert len(re.findall(r"^ +\d+ \|", shell.ask(ages), re.M)) == 121
    assert "40 rows of an answer are shown." in shell.ask("\\rows")


def test_help_unknown_commands_and_files(shell):
    said = shell.ask("\\?")
    for command in ("\\d", "\\x", "\\rows", "\\timing", "\\set", "\\e", "\\i", "\\?", "\\q"):
        assert re.search(rf"^  {re.escape(command)} ", said, re.M)
    assert "there is no such command" in shell.ask("\\nothing")
    said = shell.ask("\\i two.sql")
    assert re.search(r"^ one$", said, re.M)
    assert re.search(r"^ two$", said, re.M)
    assert re.search(r"^ three$", shell.ask("\\i marked.sql"), re.M)
    assert "the file cannot be read: no such file" in shell.ask("\\i none.sql")


def test_explain(shell):
    said = shell.ask(f"EXPLAIN RECONSTRUCTION {FLU};")
    assert "estimated by inversion" in said
    assert "condition number" in said
    assert "SELECT" not in said.partition(";")[2]
    said = shell.ask(f"EXPLAIN RECONSTRUCTION VERBOSE {FLU};")
    assert "block 0: estimated by inversion" in said
    assert "reconstruction, in memory:" in said


def test_an_editor_changes_the_last_statement_or_the_one_that_was_begun(shell):
    first = shell.ask(f"{FLU};")
    shell.send("\\e" + ENTER)
    shell.until(lambda text: text.endswith("disease = 'hiv';"))
    assert "1 row; estimates" in shell.ask("")
    assert first.count("'flu'") == 1
    shell.clear()
    shell.send(f"SELECT 'flu' AS x,{ENTER}\\e{ENTER}")
    shell.until(lambda text: text.endswith("SELECT 'hiv' AS x,"))
    assert re.search(r"^ hiv \| 2$", shell.ask(" 2 AS y;"), re.M)


def test_a_command_within_a_statement_leaves_it_as_it_was(shell):
    shell.send(f"SELECT 11{ENTER}\\set{ENTER}")
    shell.until(lambda text: text.endswith("privsql> SELECT 11\n      ->"))
    assert re.search(r"^ one$", shell.ask("AS one;"), re.M)


def test_sentences_are_broken_between_words(shell):
    shell.resize(40, 60)
    try:
        said = shell.ask(
            "SELECT disease, count(*) AS n FROM patients GROUP BY 1 ORDER BY 2 LIMIT 1;"
        )
        notice = said[said.index("NOTICE [picked]") : said.rindex("privsql>")].rstrip()
        said = shell.ask("SELECT nope FROM patients;")
        hint = said[said.index("HINT: ") : said.rindex("privsql>")].rstrip()
    finally:
        shell.resize(40, 100)
    for text in (notice, hint):
        _, *others = text.split("\n")
        assert others
        assert all(re.match(r"  \S", line) for line in others), text
    assert "privsql.simultaneous = true widens them" in " ".join(notice.split())
    assert "with the columns " in " ".join(hint.split())


def test_a_refusal_is_kind_and_the_shell_goes_on(shell):
    seen = len(shell.raw)
    said = shell.ask(f"{PERSONAL};")
    assert "ERROR [personal-group]: " in said
    assert "select one personal group (SQLSTATE 42501)" in " ".join(said.split())
    # The line is longer than the terminal is wide, and the carets still point at the condition.
    line, carets = re.search(r"^(LINE 1: .*)\n( +\^+)$", said, re.M).groups()
    assert line[carets.index("^") : len(carets)] == "job = 'eng'"
    assert "\nHINT: " in said
    assert "Traceback" not in said
    assert b"\x1b[1;31mERROR [personal-group]:" in shell.raw[seen:]
    said = shell.ask("SELEC 1; SELECT 33 AS later;")
    assert "ERROR [syntax]" in said
    assert "33\n" not in said  # what follows a failure in the same text does not run
    assert "1 row; exact" in shell.ask("SELECT 1;")


def test_ctrl_c_clears_what_is_typed(shell):
    shell.send(f"SELECT nothing{ENTER}FROM nowhere")
    shell.until("-> FROM nowhere")
    shell.send(CTRL_C)
    shell.ready()
    assert "1 row; exact" in shell.ask("SELECT 1;")


def test_ctrl_c_cancels_the_statement_and_not_the_shell(shell):
    shell.send(f"SELECT 11 AS begun; {SLOW}; SELECT 33 AS later;" + ENTER)
    shell.until("1 row; exact")
    shell.send(CTRL_C)
    said = shell.ready()
    assert "cancel" in said
    assert "33\n" not in said
    assert re.search(r"^ +44$", shell.ask("SELECT 44 AS next;"), re.M)


def test_what_is_wider_than_the_terminal_is_expanded(shell):
    said = shell.ask(f"{WIDE};")
    assert re.search(r"^-\[ 1 \]-+$", said, re.M)
    assert re.search(r"^quite_a_long_name_7 \| 7$", said, re.M)
    shell.ask("\\x off")
    assert "-[ 1 ]" not in shell.ask(f"{WIDE};")
    shell.ask("\\x auto")


def test_the_terminal_is_resized(shell):
    ask = "SELECT 1 AS quite_a_long_name_1, 2 AS quite_a_long_name_2;"
    assert "-[ 1 ]" not in shell.ask(ask)
    shell.resize(40, 40)
    try:
        assert "-[ 1 ]" in shell.ask(ask)
    finally:
        shell.resize(40, 100)
    shell.clear()
    assert "-[ 1 ]" not in shell.ask(ask)


def test_history_lasts_and_is_private_and_colours_can_be_declined(shell, folder, release):
    here = {path.name for path in folder.iterdir()}
    shell.ask("SELECT 'remembered' AS word;")
    other = Terminal(
        *privsql("shell", release, "--confidence-level", "0.9"),
        cwd=folder,
        XDG_STATE_HOME=str(folder / "state"),
        NO_COLOR="1",
    )
    try:
        other.ready()
        other.send(UP)
        other.until("privsql> SELECT 'remembered' AS word;")
        assert re.search(r"^ remembered$", other.ask(""), re.M)
        assert "errors at 90%" in other.ask(f"{FLU};")
        assert "(SQLSTATE 42501)" in " ".join(other.ask(f"{PERSONAL};").split())
        other.send(CTRL_D)
        assert other.ended() == 0
        assert not COLOUR.search(other.raw.decode())
    finally:
        other.close()
    kept = folder / "state" / "privsql" / "shell_history"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert {path.name for path in folder.iterdir()} == here


def test_leaving(shell):
    """The last one here, or the next test needs a shell of its own."""
    shell.send("\\q" + ENTER)
    assert shell.ended() == 0
