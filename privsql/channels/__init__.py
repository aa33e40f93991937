"""Channels: the perturbation of one column, and its restriction to the cells of a query.

domain    which values the column can hold (``categorical``, ``grid``), and the mass of
a predicate on them (``intervals``)
channel   how they were perturbed: T, its inverse, gamma (``mechanisms``, ``matrices``)
caps      the largest private group of one channel (RECON eq. 10)
cells     which of them a query tells apart, and what of that a channel lumps exactly
"""

from privsql.channels.categorical import Categorical
from privsql.channels.cells import Cells, refine
from privsql.channels.channel import Channel, amplification, channel_from_dict, gamma_of_rho
from privsql.channels.domain import Domain, domain_from_dict
from privsql.channels.grid import Grid
from privsql.channels.intervals import Interval
from privsql.channels.matrices import Decoy, Matrix
from privsql.channels.mechanisms import FineGrain, Replace, Uniform

__all__ = [
    "Categorical",
    "Cells",
    "Channel",
    "Decoy",
    "Domain",
    "FineGrain",
    "Grid",
    "Interval",
    "Matrix",
    "Replace",
    "Uniform",
    "amplification",
    "channel_from_dict",
    "domain_from_dict",
    "gamma_of_rho",
    "refine",
]
