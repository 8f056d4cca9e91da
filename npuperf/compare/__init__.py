"""Two measurements of one workload: may they be compared, what changed, and is that more than chance."""
