"""The base of all classifiers: parameters, prediction from original values, scores.

The names are scikit-learn's, which is not needed.  What differs is ``fit``: it takes a
release, never rows.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privsql.errors import ProgrammingError, with_article
from privsql.learn.counts import Counts, opened
from privsql.learn.features import Feature
from privsql.learn.splits import Floats

Objects = NDArray[np.object_]
Columns = Mapping[str, Sequence[Any]]


class Classifier(ABC):
    """The base of the classifiers here."""

    classes_: Objects
    feature_names_in_: Objects
    target_: str
    n_queries_: int  # that fit asked

    # -- parameters ----------------------------------------------------------------------

    @classmethod
    def _names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name."""
        del deep  # there is nothing inside
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters; the next ``fit`` uses them.  A wrong name changes nothing."""
        for name in parameters:
            if name not in self._names():
                raise ProgrammingError(
                    f"{type(self).__name__} has no parameter {name}",
                    hint=f"it has {', '.join(self._names())}",
                )
        for name, value in parameters.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        """As it is written."""
        given = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({given})"

    # -- learning ------------------------------------------------------------------------

    cuts: int

    def fit(
        self,
        source: object,
        target: str,
        features: Sequence[str] | None = None,
        table: str | None = None,
    ) -> Self:
        """Learn ``target`` from a release: its path, a connection or a session.

        ``features`` are all other columns unless they are named; ``table`` is the release's.
        """
        options = self._checked()
        with opened(source) as session:
            counts = Counts(session, target, table, **options)
            names = chosen(counts, (name for name, _ in session.catalog.columns), features)
            self._learn(counts, [counts.feature(name, self.cuts) for name in names])
        self.classes_ = np.array(counts.classes, dtype=object)
        self.feature_names_in_ = np.array(names, dtype=object)
        self.target_ = counts.target
        self.n_queries_ = counts.asked
        return self

    @abstractmethod
    def _checked(self) -> dict[str, Any]:
        """Refuse parameters that cannot be used; return the options of ``Counts``."""

    @abstractmethod
    def _learn(self, counts: Counts, features: Sequence[Feature]) -> None:
        """Learn from the counts of these features; nothing changes where that fails."""

    # -- predictions ---------------------------------------------------------------------

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of ``classes_``, a row for each row of original values."""
        self._check_fitted()
        columns, rows = columns_of(X, [str(name) for name in self.feature_names_in_])
        return self._probabilities(columns, rows)

    @abstractmethod
    def _probabilities(self, columns: Columns, rows: int) -> Floats:
        """Probabilities of the classes, from columns that were checked."""

    def predict(self, X: Any) -> Objects:
        """The likeliest class for each row of original values."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[likeliest], dtype=object)

    def score(self, X: Any, y: Iterable[Any] | None = None) -> float:
        """The share of rows whose class is predicted; without ``y`` the target is in ``X``."""
        predicted = self.predict(X)
        if y is None:
            found, _ = columns_of(X, [self.target_])
            y = found[self.target_]
        truth = list(y)
        if len(truth) != predicted.size:
            raise ProgrammingError(
                f"there are {predicted.size} rows and {len(truth)} classes",
                hint="give one class for each row",
            )
        if not truth:
            raise ProgrammingError("there are no rows to score", hint="give at least one")
        return float(np.mean([bool(a == b) for a, b in zip(predicted, truth, strict=True)]))

    def _check_fitted(self) -> None:
        if not hasattr(self, "classes_"):
            raise ProgrammingError(
                f"this {type(self).__name__} is not fitted yet",
                hint="call fit(release, target=...) first",
            )


def chosen(counts: Counts, session_columns: Iterable[str], features: object) -> list[str]:
    """The features' names as the release spells them; by default all columns but the target."""
    if features is None:
        found = [name for name in session_columns if name != counts.target]
    elif isinstance(features, str) or not isinstance(features, Iterable):
        raise ProgrammingError("features is a list of columns", hint='for example ["age", "sex"]')
    else:
        found = [counts.named(name) for name in features]
    if not found:
        raise ProgrammingError("there is no feature to learn from", hint="name at least one column")
    if counts.target in found:
        raise ProgrammingError(
            f"the target {counts.target} is among the features", hint="leave it out"
        )
    if len(set(found)) < len(found):
        raise ProgrammingError("a feature is named twice", hint="name each column once")
    return found


def columns_of(X: Any, names: Sequence[str]) -> tuple[dict[str, list[Any]], int]:
    """The named columns of a data frame, an Arrow table or a dict of columns, as lists."""
    if isinstance(X, Mapping):
        have = {str(name): column for name, column in X.items()}
    elif hasattr(X, "column_names"):  # pyarrow
        have = {name: X.column(i) for i, name in enumerate(X.column_names)}
    elif hasattr(X, "columns"):  # pandas, polars
        have = {str(name): X[name] for name in X.columns}
    else:
        raise ProgrammingError(
            f"cannot predict from {with_article(type(X).__name__)}",
            hint="give a DataFrame, an Arrow table or a dict of columns, with original values",
        )
    folded = {name.casefold(): name for name in reversed(have)}
    absent = [name for name in names if name not in have and name.casefold() not in folded]
    if absent:
        raise ProgrammingError(
            f"there is no column {', '.join(absent)} to predict from",
            hint=f"needed: {', '.join(names)}",
        )
    found = {
        name: _listed(have[name] if name in have else have[folded[name.casefold()]], name)
        for name in names
    }
    sizes = {len(column) for column in found.values()}
    if len(sizes) > 1:
        raise ProgrammingError(
            "the columns have different lengths", hint="give one value per row in each"
        )
    return found, sizes.pop() if sizes else 0


def _listed(column: Any, name: str) -> list[Any]:
    """A column's values as Python objects."""
    for way in ("to_pylist", "to_list", "tolist"):
        if hasattr(column, way):
            found = getattr(column, way)()
            if isinstance(found, list):
                return found
    if isinstance(column, Iterable) and not isinstance(column, str | bytes):
        return list(column)
    raise ProgrammingError(f"column {name} is one value, not a list", hint="give a list of values")


def checked(name: str, value: object, least: float, most: float, whole: bool = False) -> None:
    """A parameter must be a number in a range; NaN is in none."""
    kinds = (int, np.integer) if whole else (int, float, np.number)
    fine = isinstance(value, kinds) and not isinstance(value, bool)
    if not fine or not least <= value <= most:  # type: ignore[operator]
        kind = "a whole number" if whole else "a number"
        upper = f" to {most:g}" if np.isfinite(most) else " on"
        raise ProgrammingError(
            f"{name} is {kind} from {least:g}{upper}", hint=f"give another {name}"
        )
