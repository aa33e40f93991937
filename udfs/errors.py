"""Errors of kernels: wrong calls, and numbers that no call can use."""


class KernelError(ValueError):
    """A kernel was called with arrays that do not fit together or mean nothing.

    Whoever wrote the call made the mistake: seen from a statement it is a bug of ours.  The text
    is written for a person and never holds a value of the data, only names, shapes and parameters.
    """


class InputError(KernelError):
    """A kernel was given numbers that it cannot use.

    A statement can bring them: an expression that is infinite in some row, or columns whose
    published values say nothing of the original ones.
    """
