"""Statements other than queries: settings, transactions, cursors, COPY."""

from __future__ import annotations

from dataclasses import replace

from privsql.sql.postgres.commands import Command
from privsql.sql.postgres.lexer import NAME, NUMBER, QUOTED, SIGN, STRING, Reading, mistake, words

# Names that PostgreSQL shows in its own spelling; all others are lower case.
_SPELLED = {"timezone": "TimeZone", "datestyle": "DateStyle", "intervalstyle": "IntervalStyle"}

_DIRECTIONS = {
    "next": ("forward", 1),
    "prior": ("backward", 1),
    "first": ("absolute", 1),
    "last": ("absolute", -1),
}


class Utility(Reading):
    """Reads one statement that is no query."""

    def read(self) -> Command | None:
        """The command, or None where the first word is of no statement here."""
        first = self._words[0]
        reader = self._READERS.get(first.value) if first.kind == NAME else None
        return None if reader is None else reader(self)

    # -- settings ---------------------------------------------------------------------

    def _setting_name(self) -> str:
        if self._says("time", "zone"):
            return "TimeZone"
        if self._says("transaction", "isolation", "level"):
            return "transaction_isolation"
        if self._says("session", "authorization"):
            return "session_authorization"
        if self._says("names"):
            return "client_encoding"
        name = self._name("the name of a setting")
        while self._sign("."):
            name += "." + self._name("the name of a setting")
        return _SPELLED.get(name.lower(), name.lower())

    def _set(self) -> Command:
        local = False
        if self._says("session", "characteristics", "as", "transaction"):
            return self._transaction_modes("default_transaction")
        if self._says("local"):
            local = True
        else:
            following = self._peek(1)
            if following is None or not following.says("authorization"):
                self._says("session")
        if self._says("transaction"):
            return self._transaction_modes("transaction")
        if self._says("constraints"):
            self._at = len(self._words)
            return Command("set", name="constraints", tag="SET CONSTRAINTS")
        implied = self._peek()
        name = self._setting_name()
        given = self._sign("=") or self._says("to")
        bare = implied is not None and implied.says("time", "names", "session")
        if not given and not bare:
            raise self._wrong("a setting is written name = value")
        if self._says("default"):
            self._end()
            return Command("reset", name=name, tag="SET", local=local)
        if name == "TimeZone" and self._says("interval"):
            return Command("set", name=name, value=self._interval(), tag="SET", local=local)
        return Command("set", name=name, value=self._value(), tag="SET", local=local)

    def _value(self) -> str:
        parts: list[str] = []
        while True:
            sign = "-" if self._sign("-") else ""
            parts.append(sign + self._next("a value", NAME, QUOTED, STRING, NUMBER).value)
            if not self._sign(","):
                break
        self._end()
        return ", ".join(parts)

    def _interval(self) -> str:
        """``INTERVAL '+02:00' HOUR TO MINUTE``: how far a zone is from UTC."""
        value = self._next("an interval", STRING).value
        if self._says("hour"):
            _ = self._says("to", "minute") or self._says("to", "second")
        self._end()
        return f"INTERVAL '{value}'"

    def _transaction_modes(self, prefix: str) -> Command:
        return Command("set", name=prefix, options=self._modes(), tag="SET", local=True)

    def _modes(self) -> dict[str, str]:
        modes: dict[str, str] = {}
        while self._peek() is not None:
            if self._says("isolation", "level"):
                level = [self._name("an isolation level")]
                if level[0] in ("read", "repeatable"):
                    level.append(self._name("an isolation level"))
                modes["isolation"] = " ".join(level)
            elif self._says("read", "only") or self._says("read", "write"):
                modes["read_only"] = "on" if self._words[self._at - 1].value == "only" else "off"
            elif self._says("not", "deferrable") or self._says("deferrable"):
                deferred = not self._words[self._at - 2].says("not")
                modes["deferrable"] = "on" if deferred else "off"
            else:
                raise self._wrong("this is not a transaction mode")
            self._sign(",")
        return modes

    def _reset(self) -> Command:
        name = "all" if self._says("all") else self._setting_name()
        self._end()
        return Command(self._words[0].value, name=name, tag=self._words[0].value.upper())

    def _show(self) -> Command:
        made = self._reset()
        names = ("name", "setting", "description") if made.name == "all" else (made.name,)
        return replace(made, names=names)

    # -- transactions -----------------------------------------------------------------

    def _begin(self) -> Command:
        tag = "BEGIN"
        if self._words[0].says("start"):
            tag = "START TRANSACTION"
            self._must("transaction")
        elif not self._says("transaction"):
            self._says("work")
        return Command("begin", options=self._modes(), tag=tag)

    def _chain(self) -> None:
        if not self._says("transaction"):
            self._says("work")
        if not self._says("and", "no", "chain") and self._says("and", "chain"):
            self._at -= 1
            raise self._wrong("AND CHAIN is not served")

    def _commit(self) -> Command:
        self._chain()
        self._end()
        return Command("commit", tag="COMMIT")

    def _rollback(self) -> Command:
        self._chain()
        if self._says("to"):
            return replace(self._savepoint(), kind="rollback", tag="ROLLBACK")
        self._end()
        return Command("rollback", tag="ROLLBACK")

    def _savepoint(self) -> Command:
        kind = self._words[0].value
        if kind != "savepoint":
            self._says("savepoint")
        return Command(kind, name=self._last_name("a savepoint"), tag=kind.upper())

    # -- cursors ----------------------------------------------------------------------

    def _declare(self) -> Command:
        name = self._name("the name of a cursor")
        while not self._says("cursor"):
            # Every cursor here scrolls, whatever is asked for.
            words = ("scroll", "insensitive", "asensitive", "binary")
            if not self._says("no", "scroll") and not any(map(self._says, words)):
                raise self._wrong("CURSOR is missing")
        binary = any(word.says("binary") for word in self._words[: self._at])
        hold = self._says("with", "hold")
        if not hold:
            self._says("without", "hold")
        self._must("for")
        return Command(
            "declare",
            name=name,
            inner=self._inner(self._text, self._rest()),
            hold=hold,
            options={"binary": "on"} if binary else {},
            tag="DECLARE CURSOR",
        )

    def _fetch(self) -> Command:
        kind = self._words[0].value
        direction, count = self._direction()
        if not self._says("from"):
            self._says("in")
        name = self._last_name("a cursor")
        return Command(kind, name=name, direction=direction, count=count, tag=kind.upper())

    def _direction(self) -> tuple[str, int | None]:
        following = self._peek()
        word = "forward"
        # A cursor may be called like that: then nothing follows.
        if following is not None and self._peek(1) is not None:
            if following.says(*_DIRECTIONS):
                self._at += 1
                return _DIRECTIONS[following.value]
            if following.says("forward", "backward", "absolute", "relative"):
                self._at += 1
                word = following.value
        if word in ("forward", "backward") and self._says("all"):
            return word, None
        number = self._number()
        if number is None and word in ("absolute", "relative"):
            raise self._wrong("a number is missing")
        return word, 1 if number is None else number

    def _close(self) -> Command:
        return self._one_or_all("close", "a cursor", "CLOSE CURSOR")

    def _one_or_all(self, kind: str, what: str, tag: str) -> Command:
        if self._says("all"):
            self._end()
            return Command(kind, tag=f"{tag} ALL")
        return Command(kind, name=self._last_name(what), tag=tag)

    # -- prepared statements ----------------------------------------------------------

    def _prepare(self) -> Command:
        name = self._name("the name of a statement")
        types = self._listed()
        self._must("as")
        inner = self._inner(self._text, self._rest())
        return Command("prepare", name=name, inner=inner, arguments=types, tag="PREPARE")

    def _execute(self) -> Command:
        name = self._name("the name of a statement")
        given = self._listed()
        self._end()
        return Command("execute", name=name, arguments=given, tag="EXECUTE")

    def _deallocate(self) -> Command:
        self._says("prepare")
        return self._one_or_all("deallocate", "a statement", "DEALLOCATE")

    # -- others -----------------------------------------------------------------------

    def _copy(self) -> Command:
        if not self._sign("("):
            return self._copy_table()
        start, depth = self._at, 1
        while depth:
            word = self._next("a closing parenthesis")
            depth += (word.value == "(") - (word.value == ")") if word.kind == SIGN else 0
        return self._copied(self._inner(self._text, self._words[start : self._at - 1]))

    def _copy_table(self) -> Command:
        start = self._at
        while (word := self._peek()) is not None and not word.says("to", "from"):
            self._at += 1
        if word is None or word.says("from"):
            self._at = len(self._words)
            return Command("other", name="COPY", tag="COPY")
        # COPY t (a, b) TO is SELECT a, b FROM t: rows, which a release does not give.
        columns = [each for each in self._words[start : self._at] if each.value == "("]
        stop = self._words.index(columns[0]) if columns else self._at
        table = self._text[self._words[start].start : self._words[stop - 1].stop]
        chosen = "*"
        if columns:
            chosen = self._text[columns[0].stop : self._words[self._at - 1].start]
        made = f"SELECT {chosen} FROM {table}"  # noqa: S608 - it is read, not run
        return self._copied(self._inner(made, list(words(made))))

    def _copied(self, inner: Command) -> Command:
        if not self._says("to", "stdout"):
            raise mistake(
                "COPY goes to STDOUT only",
                self._text,
                self._words[0].start,
                self._words[-1].stop,
                hint="COPY (SELECT ...) TO STDOUT",
            )
        return Command("copy", inner=inner, options=self._copy_options(), tag="COPY")

    def _copy_options(self) -> dict[str, str]:
        options: dict[str, str] = {}
        self._says("with")
        listed = self._sign("(")
        while (word := self._peek()) is not None:
            if self._sign(")" if listed else ","):
                continue
            self._at += 1
            if self._sign(","):
                options[word.value] = "on"
                continue
            following = self._peek()
            valued = listed or (word.kind == NAME and not word.says("header"))
            if not listed and word.says("csv", "binary", "text"):
                options["format"] = word.value
            elif following is None or (word.says("header") and following.kind == SIGN):
                options[word.value] = "on"
            elif valued:
                if not listed:
                    self._says("as")
                options[word.value] = self._next("a value").value
            else:
                options[word.value] = "on"
            self._sign(",")
        return options

    def _discard(self) -> Command:
        what = self._name("what to discard")
        self._end()
        return Command("discard", name=what, tag=f"DISCARD {what.upper()}")

    def _listen(self) -> Command:
        word = self._words[0].value
        return Command("listen", name=word, tag=word.upper())

    _READERS = {  # noqa: RUF012 - a table, not a default
        "set": _set,
        "reset": _reset,
        "show": _show,
        "begin": _begin,
        "start": _begin,
        "commit": _commit,
        "end": _commit,
        "rollback": _rollback,
        "abort": _rollback,
        "savepoint": _savepoint,
        "release": _savepoint,
        "declare": _declare,
        "fetch": _fetch,
        "move": _fetch,
        "close": _close,
        "prepare": _prepare,
        "execute": _execute,
        "deallocate": _deallocate,
        "copy": _copy,
        "discard": _discard,
        "listen": _listen,
        "unlisten": _listen,
        "notify": _listen,
    }
