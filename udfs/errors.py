"""The one error that a kernel raises for a wrong call."""


class KernelError(ValueError):
    """A kernel was called with arrays that do not fit together or mean nothing.

    The text is written for a person: DuckDB shows it as it is.  It never holds a value
    of the data, only names, shapes and parameters.
    """
