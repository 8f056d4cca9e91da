"""A device's time: windows that are split exactly, launches, steps, phases, and the verdict on each."""
