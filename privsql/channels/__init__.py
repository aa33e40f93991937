"""What publishing does to one column, and how a query sees it.

``domain`` says which values the column can hold, ``channel`` and ``mechanisms`` how they
were perturbed, ``cells`` which of them a query tells apart.
"""
