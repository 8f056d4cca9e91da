"""Which cores kernels use, one by one and over time."""
