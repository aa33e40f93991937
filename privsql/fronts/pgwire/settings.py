"""Run-time parameters: SET, SHOW and RESET, and those reported to clients.

Tools set many of them without need (``extra_float_digits``, ``search_path``); those that change
nothing here are accepted and shown again.  What an answer depends on is checked: the zone
of timestamps, the time limit, and our own ``privsql.*``.  Like PostgreSQL's, a change made in a
transaction that is rolled back never was, and ``SET LOCAL`` ends with its transaction.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Mapping
from dataclasses import fields

from privsql.fronts.pgwire.errors import (
    BadSettingError,
    FixedSettingError,
    UnknownSettingError,
)
from privsql.session.settings import Settings

# Versions that tools compare: 15 is the one whose catalog and protocol this follows.
SERVER_VERSION = "15.0 (privsql)"

# Clients keep copies of these, so every change is told.
REPORTED = (
    "application_name",
    "client_encoding",
    "DateStyle",
    "default_transaction_read_only",
    "in_hot_standby",
    "integer_datetimes",
    "IntervalStyle",
    "is_superuser",
    "server_encoding",
    "server_version",
    "session_authorization",
    "standard_conforming_strings",
    "TimeZone",
)

FIXED = {
    "server_version": SERVER_VERSION,
    "server_version_num": "150000",
    "server_encoding": "UTF8",
    "integer_datetimes": "on",
    "in_hot_standby": "off",
    "is_superuser": "off",
    "max_identifier_length": "63",
    "max_index_keys": "32",
    "block_size": "8192",
    "lc_collate": "C",
    "lc_ctype": "C",
    "max_connections": "100",
    "wal_level": "replica",
    "ssl": "on",
}
# Accepted with the one value that is true here, whatever its spelling.
ONLY = {
    "client_encoding": ("UTF8", {"utf8", "utf-8", "unicode", "sql_ascii"}),
    "standard_conforming_strings": ("on", {"on", "true", "1", "yes"}),
    "IntervalStyle": ("postgres", {"postgres", "iso_8601", "sql_standard", "postgres_verbose"}),
}
FREE = {
    "application_name": "",
    "DateStyle": "ISO, MDY",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "check_function_bodies": "on",
    "client_min_messages": "notice",
    "default_transaction_deferrable": "off",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "on",
    "escape_string_warning": "on",
    "extra_float_digits": "1",
    "geqo": "on",
    "idle_in_transaction_session_timeout": "0",
    "jit": "off",
    "lc_messages": "C",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "lc_time": "C",
    "lock_timeout": "0",
    "row_security": "on",
    "search_path": '"$user", public',
    "session_authorization": "",
    "role": "none",
    "statement_timeout": "0",
    "synchronous_commit": "on",
    "tcp_keepalives_idle": "0",
    "transaction_deferrable": "off",
    "transaction_isolation": "read committed",
    "transaction_read_only": "on",
    "work_mem": "4MB",
    "xmloption": "content",
}

_OURS = {f"privsql.{field.name}": field.name for field in fields(Settings)}
_SPELLING = {name.lower(): name for name in (*FIXED, *ONLY, *FREE)}
_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(us|ms|s|min|h|d)?\s*")
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_ZONES = {"utc": "UTC", "gmt": "UTC", "z": "UTC", "zulu": "UTC", "default": "UTC", "local": "UTC"}
_LONGEST = 1000
_MOST = 100  # parameters of a client's own naming


class RunTime:
    """The run-time parameters of one connection.

    >>> known = RunTime("ann", {"application_name": "psql"})
    >>> known.show("APPLICATION_NAME"), known.set("timezone", "Europe/Berlin")
    ('psql', 'TimeZone')
    """

    def __init__(self, user: str, given: Mapping[str, str]) -> None:
        self._first: dict[str, str] = {**FREE, "session_authorization": user}
        for name, (value, _) in ONLY.items():
            self._first[name] = value
        self._values = dict(self._first)
        self.settings = Settings()
        self._before: tuple[dict[str, str], Settings] | None = None
        self._after: tuple[dict[str, str], Settings] | None = None
        for name, value in given.items():
            self.set(name, value)
        self._first = dict(self._values)
        self._settings = self.settings
        self._told: dict[str, str] = {}
        self._changed = True

    # -- one parameter -------------------------------------------------------------------

    def show(self, name: str) -> str:
        """The value of a parameter."""
        known = self._spelled(name)
        if known in _OURS:
            return _shown(getattr(self.settings, _OURS[known]))
        if known in FIXED:
            return FIXED[known]
        if known not in self._values:
            raise _unknown(name)
        return self._values[known]

    def set(self, name: str, value: str, *, local: bool = False) -> str:
        """Change a parameter, and return its name as it is spelled here."""
        known = self._spelled(name)
        if known in FIXED:
            raise FixedSettingError(f'parameter "{known}" cannot be changed')
        self._changed = True
        kept = self._values, self.settings
        self._values = dict(self._values)
        try:
            self._change(known, value)
        except BaseException:
            self._values, self.settings = kept
            raise
        if self._before is not None and not local and self._after is not None:
            self._after = self._after[0] | {known: self._values.get(known, "")}, self.settings
        return known

    def _change(self, known: str, value: str) -> None:
        if known in _OURS:
            self.settings = self.settings.with_option(known, _ours(known, value))
            return
        if known.lower().startswith("privsql."):
            self.settings.with_option(known, value)  # says which there are
        self._values[known] = self._checked(known, value)

    def reset(self, name: str) -> str:
        """Back to what it was when the connection began; ``all`` is every one."""
        self._changed = True
        if name == "all":
            self._values, self.settings = dict(self._first), self._settings
            return name
        known = self._spelled(name)
        if known in _OURS:
            default = getattr(self._settings, _OURS[known])
            self.settings = self.settings.with_option(known, default)
            return known
        if known in FIXED:
            raise FixedSettingError(f'parameter "{known}" cannot be changed')
        if known not in self._values and known not in self._first:
            raise _unknown(name)
        if known in self._first:
            self._values[known] = self._first[known]
        else:
            self._values.pop(known, None)
        return known

    def all(self) -> list[tuple[str, str]]:
        """Every parameter with its value, in order."""
        ours = {name: self.show(name) for name in _OURS}
        return sorted({**FIXED, **self._values, **ours}.items(), key=lambda pair: pair[0].lower())

    # -- transactions --------------------------------------------------------------------

    def begin(self) -> None:
        """Remember the values: a rollback brings them back."""
        self._before = dict(self._values), self.settings
        self._after = dict(self._values), self.settings

    def end(self, committed: bool) -> None:
        """The transaction ends: what was set locally ends with it."""
        kept = self._after if committed else self._before
        self._changed = True
        if kept is not None:
            self._values, self.settings = dict(kept[0]), kept[1]
        self._before = self._after = None

    # -- what others need ----------------------------------------------------------------

    def news(self) -> list[tuple[str, str]]:
        """Reported parameters whose value the client does not know yet."""
        if not self._changed:
            return []
        self._changed = False
        now = {name: self.show(name) for name in REPORTED}
        changed = [(name, value) for name, value in now.items() if self._told.get(name) != value]
        self._told = now
        return changed

    @property
    def zone(self) -> str:
        """The zone in which timestamps with one are written."""
        return self._values["TimeZone"]

    @property
    def timeout(self) -> float | None:
        """Seconds that a statement may take, or None."""
        return _seconds(self._values["statement_timeout"]) or None

    @property
    def changed(self) -> dict[str, str]:
        """What differs from the defaults, by names in lower case: for ``current_setting``."""
        found = {name.lower(): value for name, value in FIXED.items()}
        for name, value in self._values.items():
            if FREE.get(name) != value:
                found[name.lower()] = value
        return found | {name: self.show(name) for name in _OURS}

    @property
    def options(self) -> dict[str, object]:
        """Our settings that differ from the default, as options of a statement."""
        default = Settings()
        names = [field.name for field in fields(Settings)]
        return {
            name: getattr(self.settings, name)
            for name in names
            if getattr(self.settings, name) != getattr(default, name)
        }

    @staticmethod
    def _spelled(name: str) -> str:
        lowered = name.lower()
        return lowered if lowered in _OURS else _SPELLING.get(lowered, lowered)

    def _checked(self, name: str, value: str) -> str:
        if len(value) > _LONGEST or "\0" in value:
            raise BadSettingError(f'the value for parameter "{name}" is too long')
        if name in ONLY:
            only, spellings = ONLY[name]
            if value.strip().strip("'\"").lower() not in spellings:
                raise BadSettingError(f'parameter "{name}" can only be {only} here')
            return only
        if name == "TimeZone":
            return _zone(value)
        if name in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
            _seconds(value)
            return value
        if name == "DateStyle":
            if not value.strip().lower().startswith(("iso", "dmy", "mdy", "ymd")):
                raise BadSettingError("dates are written in ISO style only")
            return "ISO, DMY" if "dmy" in value.lower() else "ISO, MDY"
        if name in FREE:
            return value
        if "." not in name:
            raise _unknown(name)
        if name not in self._values and sum("." in each for each in self._values) >= _MOST:
            raise BadSettingError("there are too many parameters")
        return value


def _unknown(name: str) -> UnknownSettingError:
    return UnknownSettingError(f'unrecognized configuration parameter "{name[:100]}"')


def _shown(value: object) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def _ours(name: str, value: str) -> object:
    """A text as the setting's own type."""
    default = getattr(Settings(), _OURS[name])
    word = value.strip().lower()
    if isinstance(default, bool):
        if word in ("on", "true", "yes", "1"):
            return True
        return False if word in ("off", "false", "no", "0") else value
    if isinstance(default, float):
        try:
            return float(value)
        except ValueError:
            return value
    return word


def _zone(value: str) -> str:
    word = value.strip().strip("'\"")
    plain = _ZONES.get(word.lower())
    if plain is not None:
        return plain
    try:
        zoneinfo.ZoneInfo(word)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise BadSettingError("there is no such time zone") from None
    return word


def _seconds(value: str) -> float:
    """A duration; without a unit it is in milliseconds.

    >>> _seconds("1500"), _seconds("2min")
    (1.5, 120.0)
    """
    match = _DURATION.fullmatch(value.strip("'\""))
    if match is None:
        raise BadSettingError("a duration is a number with a unit: ms, s, min, h, d")
    return float(match[1]) * _UNITS[match[2] or "ms"]
