"""What the host did: events and their nesting, causes, waits for the device, the order of submission."""
