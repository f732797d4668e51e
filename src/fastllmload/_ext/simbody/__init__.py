"""The bodies that the simulated engine answers with: by API, as events of a stream and as one document."""
