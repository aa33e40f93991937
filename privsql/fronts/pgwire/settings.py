"""Run-time parameters: SET, SHOW and RESET, and those reported to clients.

Tools set many of them without need (``extra_float_digits``, ``search_path``); those that change
nothing here are accepted and shown again.  What an answer depends on is checked: the zone
of timestamps, the time limit, and our own ``privsql.*``.  Like PostgreSQL's, a change made in a
transaction that is rolled back never was, and ``SET LOCAL`` ends with its transaction.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields

from privsql.fronts.pgwire.errors import (
    BadSettingError,
    FixedSettingError,
    UnknownSettingError,
)
from privsql.session.settings import Settings

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
    # Tools compare it: 15 is the one whose catalog and protocol this follows.
    "server_version": "15.0 (privsql)",
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

_DEFAULTS = Settings()
_OURS = {f"privsql.{field.name}": field.name for field in fields(Settings)}
_SPELLING = {name.lower(): name for name in (*FIXED, *ONLY, *FREE)}
_SPAN = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(us|ms|s|min|h|d)?\s*")
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
# Hours, or an interval of hours and minutes, east of UTC.
_HOURS = re.compile(
    r"([+-]?\d{1,2}(?:\.\d+)?)|interval\s*'?\s*([+-]?)(\d{1,2})(?::(\d\d)(?::00)?|\s*hours?)?\s*'?",
    re.IGNORECASE,
)
_POSIX = re.compile(r"(?:<[\w+:-]+>|[A-Za-z]{3,})([+-]?)(\d{1,2})(?::(\d\d)(?::00)?)?")
_FARTHEST = 86_400
# What the catalog's clock calls the zone; not a parameter's name.
ZONE = "zone"
_UTC = ("utc", "gmt", "z", "zulu", "default", "local")
_TRUTH = dict.fromkeys(("on", "true", "yes", "1"), True)
_TRUTH |= dict.fromkeys(("off", "false", "no", "0"), False)
_LONGEST = 1000
_MOST = 100  # parameters of a client's own naming


class RunTime:
    """The run-time parameters of one connection.

    >>> known = RunTime("ann", {"application_name": "psql"})
    >>> known.set("timezone", "Europe/Berlin")
    >>> known.show("APPLICATION_NAME"), known.zone
    ('psql', 'Europe/Berlin')
    """

    def __init__(self, user: str, given: Mapping[str, str]) -> None:
        only = {name: value for name, (value, _) in ONLY.items()}
        self._values = {**FREE, **only, "session_authorization": user}
        self.settings = Settings()
        self._before: tuple[dict[str, str], Settings] | None = None
        self._after: tuple[dict[str, str], Settings] | None = None
        for name, value in given.items():
            self.set(name, value)
        self._first = self._values, self.settings
        self._told: dict[str, str] = {}
        self._changed = True

    # -- one parameter -------------------------------------------------------------------

    def show(self, name: str) -> str:
        """The value of a parameter."""
        known = self._spelled(name)
        if known in _OURS:
            value = getattr(self.settings, _OURS[known])
            return ("on" if value else "off") if isinstance(value, bool) else str(value)
        if known in FIXED:
            return FIXED[known]
        if known not in self._values:
            raise _unknown(name)
        return self._values[known]

    def set(self, name: str, value: str, *, local: bool = False) -> None:
        """Change a parameter."""
        known = self._changeable(name)
        if known in _OURS:
            self.settings = self.settings.with_option(known, own_value(_OURS[known], value))
        else:
            if known.startswith("privsql."):
                self.settings.with_option(known, value)  # says which there are
            self._values = self._values | {known: self._checked(known, value)}
        if self._after is not None and not local:
            self._after = self._after[0] | {known: self._values.get(known, "")}, self.settings

    def reset(self, name: str) -> None:
        """Back to what it was when the connection began; ``all`` is every one."""
        values, settings = self._first
        if name == "all":
            self._changed = True
            self._values, self.settings = self._first
            return
        known = self._changeable(name)
        if known in _OURS:
            self.settings = self.settings.with_option(known, getattr(settings, _OURS[known]))
        elif known in values:
            self._values = self._values | {known: values[known]}
        elif known in self._values:
            self._values = {each: v for each, v in self._values.items() if each != known}
        else:
            raise _unknown(name)

    def _changeable(self, name: str) -> str:
        """A parameter's name as it is spelled here."""
        known = self._spelled(name)
        if known in FIXED:
            raise FixedSettingError(f'parameter "{known}" cannot be changed')
        self._changed = True
        return known

    def all(self) -> list[tuple[str, str]]:
        """Every parameter with its value, in order."""
        ours = {name: self.show(name) for name in _OURS}
        return sorted({**FIXED, **self._values, **ours}.items(), key=lambda pair: pair[0].lower())

    # -- transactions --------------------------------------------------------------------

    def begin(self) -> None:
        """Remember the values: a rollback brings them back."""
        self._before = self._after = self._values, self.settings

    def end(self, committed: bool) -> None:
        """The transaction ends: what was set locally ends with it."""
        kept = self._after if committed else self._before
        self._changed = True
        if kept is not None:
            self._values, self.settings = kept
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
        """The zone in which timestamps with one are written: a name, or ``+05:30``."""
        shown = self._values["TimeZone"]
        fixed = _fixed(shown)
        return shown if fixed is None else _offset(fixed)

    @property
    def timeout(self) -> float | None:
        """Seconds that a statement may take, or None."""
        return _seconds(self._values["statement_timeout"]) or None

    @property
    def changed(self) -> dict[str, str]:
        """What differs from the defaults, by names in lower case: for ``current_setting``."""
        changed = {name: v for name, v in self._values.items() if FREE.get(name) != v}
        found = {name.lower(): value for name, value in {**FIXED, **changed}.items()}
        found |= {name: self.show(name) for name in _OURS}
        zone = self.zone
        return found | {ZONE: f"GMT{zone}" if zone[0] in "+-" else zone}

    @property
    def options(self) -> dict[str, object]:
        """Our settings that differ from the default, as options of a statement."""
        now = vars(self.settings).items()
        return {name: value for name, value in now if value != getattr(_DEFAULTS, name)}

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
        if name in _CHECKED:
            return _CHECKED[name](value)
        if name not in FREE and "." not in name:
            raise _unknown(name)
        if name not in self._values and sum("." in each for each in self._values) >= _MOST:
            raise BadSettingError("there are too many parameters")
        return value


def _unknown(name: str) -> UnknownSettingError:
    return UnknownSettingError(f'unrecognized configuration parameter "{name[:100]}"')


def own_value(name: str, text: str) -> object:
    """A text as the type that one of our settings has, or as it is where it is none.

    >>> own_value("error_bars", "Yes"), own_value("confidence_level", "high")
    (True, 'high')
    """
    default, word = getattr(_DEFAULTS, name), text.strip().lower()
    if isinstance(default, bool):
        return _TRUTH.get(word, text)
    if isinstance(default, float):
        with suppress(ValueError):
            return float(text)
        return text
    return word


def _zone(value: str) -> str:
    """A zone by its name, or by its distance from UTC, which is shown as PostgreSQL does.

    >>> _zone("-5"), _zone("INTERVAL '+05:30'"), _zone("GMT+3")
    ('<-05>+05', '<+05:30>-05:30', 'GMT+3')
    """
    word = value.strip().strip("'\"")
    if word.lower() in _UTC:
        return "UTC"
    if match := _HOURS.fullmatch(word):
        seconds = round(3600 * float(match[1])) if match[1] else _clock_time(*match.groups()[1:])
        if abs(seconds) > _FARTHEST:
            raise BadSettingError("a time zone is at most 24 hours from UTC")
        east = _offset(seconds).removesuffix(":00")
        return f"<{east}>{'-' if seconds >= 0 else '+'}{east[1:]}"
    if _fixed(word) is not None:
        return word
    try:
        zoneinfo.ZoneInfo(word)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise BadSettingError("there is no such time zone") from None
    return word


def _clock_time(sign: str, hours: str, minutes: str | None) -> int:
    return (-1 if sign == "-" else 1) * (3600 * int(hours) + 60 * int(minutes or 0))


def _offset(seconds: int) -> str:
    """A distance from UTC: ``+05:30``."""
    minutes = abs(seconds) // 60
    return f"{'-' if seconds < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"


def _fixed(value: str) -> int | None:
    """Seconds east of UTC of a zone without summer time, where west is counted: ``GMT+3``.

    >>> _fixed("<+05:30>-05:30"), _fixed("GMT+3"), _fixed("Europe/Berlin"), _fixed("EST5EDT")
    (19800, -10800, None, None)
    """
    match = _POSIX.fullmatch(value)
    seconds = None if match is None else -_clock_time(*match.groups())
    return None if seconds is None or abs(seconds) > _FARTHEST else seconds


def _seconds(value: str) -> float:
    """A duration; without a unit it is in milliseconds.

    >>> _seconds("1500"), _seconds("2min")
    (1.5, 120.0)
    """
    match = _SPAN.fullmatch(value.strip("'\""))
    if match is None:
        raise BadSettingError("a duration is a number with a unit: ms, s, min, h, d")
    return float(match[1]) * _UNITS[match[2] or "ms"]


def _duration(value: str) -> str:
    _seconds(value)
    return value


def _date_style(value: str) -> str:
    if not value.strip().lower().startswith(("iso", "dmy", "mdy", "ymd")):
        raise BadSettingError("dates are written in ISO style only")
    return "ISO, DMY" if "dmy" in value.lower() else "ISO, MDY"


_CHECKED: dict[str, Callable[[str], str]] = {
    "TimeZone": _zone,
    "DateStyle": _date_style,
    "statement_timeout": _duration,
    "lock_timeout": _duration,
    "idle_in_transaction_session_timeout": _duration,
}
