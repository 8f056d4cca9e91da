"""What streams make of a device's cores: contention, core limits, SuperKernels."""
