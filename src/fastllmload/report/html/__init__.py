"""Pages: report.html of a run, and pages of given blocks and plots."""
