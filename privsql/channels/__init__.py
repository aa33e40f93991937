"""Channels: the perturbation of one column, and its restriction to the cells of a query.

intervals    ranges of values
steps        steps of grids
domain       which values a column can hold
categorical  listed values
grid         numbers, dates and times
channel      T, its inverse, gamma
mechanisms   uniform, replacing, fine-grain
matrices     any matrix, and decoys
cells        which values a query distinguishes, and what a channel lumps
caps         the largest private group of one channel (RECON eq. 10)
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
