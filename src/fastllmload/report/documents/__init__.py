"""Complete reports as text: report.md, minimum, full, blog, asiai, interval log."""
