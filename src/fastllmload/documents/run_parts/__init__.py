"""Parts of run.json by subject; `documents.run` puts them together."""
