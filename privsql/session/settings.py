"""Settings of a session (``SET privsql.*``) and of one query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from privsql.errors import ProgrammingError

ESTIMATORS = ("auto", "inversion", "iterative")


@dataclass(frozen=True)
class Settings:
    """The settings of ``SET privsql.*``."""

    estimator: str = "auto"
    confidence_level: float = 0.95
    error_bars: bool = False
    simultaneous: bool = False

    def with_options(self, options: Mapping[str, object]) -> Settings:
        """Change several settings, or say what is wrong with the first that cannot be."""
        found = self
        for name, value in options.items():
            found = found.with_option(name, value)
        return found

    def with_option(self, name: str, value: object) -> Settings:
        """Change one setting, or refuse its value."""
        short = name.removeprefix("privsql.")
        if short == "estimator":
            if value not in ESTIMATORS:
                raise ProgrammingError(
                    f"privsql.estimator cannot be {_shown(value)}",
                    hint=f"choose one of {', '.join(ESTIMATORS)}",
                )
            return replace(self, estimator=str(value))
        if short == "confidence_level":
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
                raise ProgrammingError(
                    "privsql.confidence_level is a number between 0 and 1", hint="for example 0.95"
                )
            return replace(self, confidence_level=float(value))
        if short in ("error_bars", "simultaneous"):
            if not isinstance(value, bool):
                raise ProgrammingError(f"privsql.{short} is true or false")
            return replace(self, **{short: value})  # type: ignore[arg-type]
        raise ProgrammingError(
            f"there is no setting {_shown(name)}",
            hint="there are privsql.estimator, .confidence_level, .error_bars and .simultaneous",
        )


def _shown(value: object) -> str:
    """What was given, short enough for a message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
