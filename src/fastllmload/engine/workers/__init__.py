"""Worker processes: how many, what each one gets, where it runs, and the process itself."""
