"""What a host keeps: its folder, and its events with `--collect summary`."""
