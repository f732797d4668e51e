"""A comparison rendered: terminal, Markdown, HTML page, JSON."""
