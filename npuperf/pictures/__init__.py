"""What a page draws of one device, from its profile."""
