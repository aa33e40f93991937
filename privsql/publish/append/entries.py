"""Ledger entry of a local perturbation, made while its rows stream.

    rows leave at once (a pipe)       checked and entered before the first of them leaves,
                                      completed by their state after the last
    rows leave together (a file)      checked before the first is written, checked and
                                      entered before the file comes into view

The lock of the ledger is held for each of these moments and not in between: a client may
stream for a day.  A stream that breaks off leaves an entry without a state, which counts as a
state of its own; the ledger never knows less than what has left.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from privsql.publish.keys.ledger import PERTURB, ROW, Accounting, Ledger, LedgerError, Loss
from privsql.publish.perturb.draws import Draws
from privsql.release.spec import Spec


class Entry:
    """The ledger entry of one local perturbation."""

    def __init__(self, spec: Spec, draws: Draws, ledger: Ledger, *, accept_loss: bool) -> None:
        self._spec, self._draws, self._ledger = spec, draws, ledger
        self._accept_loss = accept_loss
        self._release = secrets.token_hex(16)
        # Rows without a unit are drawn afresh: no other batch shares their draws.
        self._source = self._release if spec.unit == ROW else ""
        self._begun = self._left = False
        self.accounting: Accounting | None = None

    def before(self, made: Iterator[pa.RecordBatch], *, leaving: bool) -> Iterator[pa.RecordBatch]:
        """Hand batches on once the ledger agrees; ``leaving`` rows are entered there and then."""
        for batch in made:
            if not self._begun:
                with self._ledger.locked(wait=True):
                    self._enter(complete=False, record=leaving)
                self._begun, self._left = True, leaving
            yield batch

    def after(self) -> None:
        """Enter what was made, now that its state is known; nothing if there were no rows."""
        if self._begun:
            with self._ledger.locked(wait=True):
                # Somebody may have published meanwhile, so it is checked again.
                self._enter(complete=True, record=True)

    def _enter(self, *, complete: bool, record: bool) -> None:
        spec, losses = self._spec, self._losses()
        if not complete:
            losses = {name: replace(loss, state="") for name, loss in losses.items()}
        what, source = (spec.table, spec.unit, losses), self._source
        # What has left already cannot be refused any more, only counted.
        accepted = self._accept_loss or self._left
        try:
            self.accounting = self._ledger.check(
                *what, release=self._release, source=source, accept_loss=accepted
            )
        except LedgerError:
            if spec.unit != ROW:
                raise
            raise LedgerError(
                f"rows of {spec.table} were published before, and without a unit it is not known"
                " whether these are the same persons: fresh draws add to the privacy loss of"
                " each",
                hint="name the column that identifies a person as unit in the spec, or accept the"
                " loss with --accept-loss; use another key for other persons",
            ) from None
        if record:
            self._ledger.record(
                *what, self._release, source=source, kind=PERTURB, complete=complete
            )

    def _losses(self) -> dict[str, Loss]:
        return {
            c.name: self._draws.loss(c.name, str(c.mechanism), c.domain, channel, channel.epsilon)
            for c in self._spec.sensitive
            if c.domain is not None and (channel := c.channel()) is not None
        }
