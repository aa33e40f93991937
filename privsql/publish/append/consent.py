"""What a client agrees to before its rows leave: public columns as they are, and each epsilon.

The spec is not the client's own.  Whoever wrote it may have made identities public or accepted
any epsilon in the client's name, so neither counts unless the client says so itself.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from privsql.errors import ProgrammingError
from privsql.release.columns import EPSILON_LIMIT
from privsql.release.reading import did_you_mean, folded
from privsql.release.spec import Spec

# In place of the names of public columns: all of them.
ALL = "all"


@dataclass(frozen=True)
class Leaving:
    """What leaves a client under a spec: columns as they are, and what the others lose."""

    public: tuple[str, ...]
    epsilons: tuple[tuple[str, float], ...]

    @classmethod
    def of(cls, spec: Spec) -> Leaving:
        """Read it off a spec, whatever its author accepted."""
        channels = [(column.name, column.channel()) for column in spec.sensitive]
        return cls(
            tuple(column.name for column in spec.public),
            tuple((name, channel.epsilon) for name, channel in channels if channel is not None),
        )

    @property
    def strong(self) -> tuple[str, ...]:
        """Columns whose perturbed values reveal the originals."""
        return tuple(name for name, each in self.epsilons if each > EPSILON_LIMIT + 1e-9)

    def lines(self) -> Iterator[str]:
        """What a client is told before a row is written."""
        for name in self.public:
            yield f"{name}: public, leaves as it is"
        for name, each in self.epsilons:
            shown = "no limit: values may leave as they are" if each == math.inf else f"{each:.3g}"
            yield f"{name}: perturbed, epsilon {shown}"

    def check(self, accept_public: Collection[str], *, accept_epsilon: bool) -> None:
        """Refuse what the client did not agree to."""
        names = {folded(name) for name in self.public}
        unknown = [n for n in accept_public if folded(n) not in names and n != ALL]
        if unknown:
            raise ProgrammingError(
                f"{', '.join(unknown)}: the spec has no such public column",
                hint=did_you_mean(unknown[0], self.public),
            )
        agreed = names if ALL in accept_public else {folded(name) for name in accept_public}
        missing = [name for name in self.public if folded(name) not in agreed]
        wanted, problems = [f"--accept-public {_shell(name)}" for name in missing], []
        if missing:
            problems.append(f"{', '.join(missing)} would leave as {_they(missing)}")
        if self.strong and not accept_epsilon:
            wanted.append("--accept-epsilon")
            problems.append(
                f"the epsilon of {', '.join(self.strong)} is above {EPSILON_LIMIT:g}, where"
                " perturbed values reveal originals"
            )
        if problems:
            raise ProgrammingError(
                f"the spec asks for more than you agreed to: {'; '.join(problems)}",
                hint=f"if that is what you want to send, add {' '.join(wanted)}",
            )


def _they(names: Collection[str]) -> str:
    return "it is" if len(names) == 1 else "they are"


def _shell(name: str) -> str:
    return name if name.isidentifier() else shlex.quote(name)
