"""HTTP/1.1, sans-IO: heads and framing of responses, requests of the simulated engine's clients."""
