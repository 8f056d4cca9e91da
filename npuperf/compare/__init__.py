"""Two measurements of one workload: whether they may be compared, what changed, and whether that is more than chance."""
