"""One file per API: its wire protocols, each a value of `Endpoint` that `fastllmload.endpoint` finds."""
