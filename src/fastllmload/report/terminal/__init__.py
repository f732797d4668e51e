"""Views on a terminal: live, plain lines, the closing summary."""
