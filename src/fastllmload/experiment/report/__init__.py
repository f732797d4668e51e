"""The findings of experiments, and their reports for the terminal, Markdown and HTML."""
