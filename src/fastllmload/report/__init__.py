"""Reports of a run: live view, summary, Markdown, HTML, the methodology's reports."""
