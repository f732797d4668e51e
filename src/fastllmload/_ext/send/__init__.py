"""A worker's connections and its loop: requests out, responses in."""
