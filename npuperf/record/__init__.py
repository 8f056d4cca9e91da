"""Run a program under a profiler, export what it recorded, and keep a record of how that went."""
