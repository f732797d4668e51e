"""Which tokens arrived when, and the metrics made of gaps between tokens: ITL, fluidity, idle latency."""
