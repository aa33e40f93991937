"""The manifest: the public description of a release.

It is one JSON document inside the release.  What may stand in it is decided here, field by
field, and ``docs/manifest.md`` says of each field why it is safe to publish; a test holds
the two together.  There is no seed, no raw count, no rate that depends on raw frequencies.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from privsql.channels import Channel, Domain, channel_from_dict, domain_from_dict
from privsql.errors import Error, IntegrityError, how_many
from privsql.release.formats import check_format
from privsql.release.names import GROUP, MULTIPLICITY, WEIGHT

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FORMAT = 1

D = TypeVar("D", bound="DataclassInstance")


@dataclass(frozen=True)
class PublicColumn:
    """A column that is published as it was."""

    name: str
    type: str
    grouping: bool = True


@dataclass(frozen=True)
class SensitiveColumn:
    """A perturbed column: its domain, its channel, and the loss of one value."""

    name: str
    type: str
    mechanism: str
    domain: Domain
    channel: Channel
    epsilon: float


@dataclass(frozen=True)
class Privacy:
    """The privacy statement of a release, in figures and in words."""

    unit: str  # "row" or "person"
    epsilon: float  # of all columns of all publications together; infinite where none holds
    publications: int
    memory: bool  # draws repeat when the same unit is published again
    raw: tuple[str, ...] = ()  # what depended on raw data beyond the perturbed values
    seeded: bool = False  # drawn from a seed that may be known: for tests only
    states: int = 1  # of the source that were published under the key
    changed: float = math.inf  # epsilon of a person whose values changed between all of them
    batches: int = 0  # of rows that clients perturbed themselves, which no ledger here knows
    rows_per_unit: int = 1  # no person has more rows, in any publication under the key

    def statement(self) -> str:
        """The statement in words.

        >>> print(Privacy("person", 2.5, 1, True).statement())
        Each person's published values together are 2.5-locally differentially private, over 1
        publication; publishing the same value of the same person again repeats the same draw.

        >>> grown = Privacy("person", 2.5, 3, True, states=2, changed=5.0)
        >>> print(grown.statement().partition(".  ")[2])
        The source changed between them: the promise is 5 to a person whose values changed every
        time (2 states), and it does not cover the fact that they changed.

        >>> print(Privacy("person", math.inf, 1, True, rows_per_unit=4).statement())
        No epsilon for this release: some persons have several rows, up to 4.  A person with several
        rows loses as much in each: up to 4 times what one row loses.
        """
        who = "person" if self.unit == "person" else "row (taken for one person)"
        if self.seeded:
            return "UNSAFE: drawn from a seed, for tests only.  Nothing is promised."
        why = [*self.raw]
        several = ""
        if self.rows_per_unit > 1:
            why.append(f"some persons have several rows, up to {self.rows_per_unit:,}")
            several = (
                "  A person with several rows loses as much in each: up to"
                f" {self.rows_per_unit:,} times what one row loses."
            )
        if why:
            return f"No epsilon for this release: {'; '.join(why)}.{several}"
        if math.isinf(self.epsilon):
            return "No epsilon for this release: some values are published as they are."
        times = f"over {how_many(self.publications, 'publication')}"
        if self.publications > 1:
            times += (
                " to persons whose values stayed the same (a change is visible, and adds to it)"
            )
        if self.batches:
            times += (
                f", with {how_many(self.batches, 'batch', 'batches')} that clients perturbed"
                " (a person with rows in several of these loses as much in each)"
            )
        change = ""
        if self.states > 1:
            change = (
                f"  The source changed between them: the promise is {self.changed:.4g} to a person"
                f" whose values changed every time ({self.states} states), and it does not cover"
                " the fact that they changed."
            )
        again = (
            "publishing the same value of the same person again repeats the same draw"
            if self.memory
            else "a one-off: publishing the same people again would add to it"
        )
        return (
            f"Each {who}'s published values together are {self.epsilon:.4g}-locally"
            f" differentially private, {times}; {again}.{change}"
        )


@dataclass(frozen=True)
class Groups:
    """How personal groups were made from the public columns."""

    merge: str
    significance: float
    source: str
    df: str
    minimum: int
    columns: tuple[str, ...]
    count: int


@dataclass(frozen=True)
class Protection:
    """Reconstruction privacy: lambda and delta, and how groups are cut to it (RECON 5)."""

    relative_error: float
    probability: float
    cap: str = "grid"  # or "one", or "exact"
    scaling: str = "weight"  # or "duplicate"
    source: str = "published"  # or "raw"


@dataclass(frozen=True)
class Leverage:
    """Shares of a personal group that a user's answers together may determine."""

    any: float = 0.9  # of any weighting of its rows
    total: float = 0.8  # of its own count


@dataclass(frozen=True)
class Policy:
    """What may be answered from the release."""

    personal_groups: str = "refuse"  # or "flag", or "allow"
    min_rows: int = 10
    differences: str = "check"  # or "ignore"
    rows: str = "deny"  # or "allow"
    leverage: Leverage = Leverage()
    always: tuple[str, ...] = ()  # statements that a server never refuses


@dataclass(frozen=True)
class Manifest:
    """The public description of a release, with all that reconstruction needs."""

    release: str  # a random name of this release
    software: str
    created: str  # the day
    table: str
    public: tuple[PublicColumn, ...]
    sensitive: tuple[SensitiveColumn, ...]
    rows: int  # as stored
    grouped: bool
    weighted: bool
    multiplicity: bool
    privacy: Privacy
    groups: Groups
    protection: Protection | None
    policy: Policy
    batches: tuple[str, ...] = ()  # hashes of the batches that were added, sorted
    identity: str = ""  # digest of the manifest before it was converted, if it was
    format: int = FORMAT

    @property
    def hidden(self) -> list[str]:
        """Columns of the published table that belong to nobody, in their order."""
        own = ((GROUP, self.grouped), (WEIGHT, self.weighted), (MULTIPLICITY, self.multiplicity))
        return [name for name, there in own if there]

    def to_json(self) -> str:
        """Write the document; infinite figures are null."""
        document = _plain(self)
        if not self.identity:
            del document["identity"]
        if self.privacy.rows_per_unit == 1:  # as releases were written before there was the field
            del document["privacy"]["rows_per_unit"]
        for name in ("leverage", "always"):  # likewise
            if getattr(self.policy, name) == getattr(Policy, name):
                del document["policy"][name]
        return json.dumps(document, ensure_ascii=False, sort_keys=True, indent=1)

    @classmethod
    def from_json(cls, text: str, where: Path | str = "RELEASE") -> Manifest:
        """Read the document of the release ``where``; refuse damage and other formats."""
        data = document_of(text)
        software = data.get("software")
        check_format(data["format"], FORMAT, "the release", where=where, software=software)
        try:
            given, protection = {"identity": "", **data}, data["protection"]
            plain = [field.name for field in fields(cls) if field.type in ("str", "int", "bool")]
            return cls(
                **{name: given[name] for name in plain},
                public=tuple(_read(PublicColumn, each) for each in data["public"]),
                sensitive=tuple(_read(SensitiveColumn, each) for each in data["sensitive"]),
                privacy=_read(Privacy, {"rows_per_unit": 1, **data["privacy"]}),
                groups=_read(Groups, data["groups"]),
                protection=None if protection is None else _read(Protection, protection),
                policy=_read(Policy, {**_plain(_LATER), **data["policy"]}),
                batches=tuple(data["batches"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, Error):
            raise IntegrityError("the manifest of the release is damaged") from None


# Fields of the policy that earlier releases do not have.
_LATER = {"leverage": Policy.leverage, "always": Policy.always}


def document_of(text: str) -> dict[str, Any]:
    """The document of a manifest of whatever format; refuses what is none."""
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    if not isinstance(data, dict) or not isinstance(data.get("format"), int):
        raise IntegrityError("the manifest of the release is damaged")
    return data


def _figure(value: float | None) -> float:
    return math.inf if value is None else float(value)


# How fields of its parts are read that JSON has otherwise.
READERS: dict[str, Callable[[Any], object]] = {
    "domain": domain_from_dict,
    "channel": channel_from_dict,
    "epsilon": _figure,
    "changed": _figure,
    "raw": tuple,
    "columns": tuple,
    "leverage": lambda value: _read(Leverage, value),
    "always": tuple,
}


def _read(kind: type[D], data: Mapping[str, Any]) -> D:
    if set(data) != {field.name for field in fields(kind)}:
        raise KeyError
    read = {name: READERS[name](data[name]) for name in READERS if name in data}
    return kind(**{**data, **read})


def _plain(value: Any) -> Any:
    """A part of the manifest as JSON has it."""
    if isinstance(value, Channel | Domain):
        return value.to_dict()
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return None if isinstance(value, float) and math.isinf(value) else value
