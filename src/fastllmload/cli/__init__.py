"""The command line: commands, options and how both become settings."""
