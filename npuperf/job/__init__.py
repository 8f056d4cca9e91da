"""Several ranks as one job: matched, aligned, replayed, blamed."""
