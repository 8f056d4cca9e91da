"""Pure functions from a device's tasks to what they mean. No files, no printing, no advice."""
