"""A block to its plan: states, a scan and a reconstruction.

grids       conditions on grids that are too large to list
states      cells of sensitive columns, and their channel
block_plan  the plan of one block
planner     which form of scan, and all plans of a query
"""
