"""What experiments found, as findings, and their reports for the terminal, Markdown and HTML."""
