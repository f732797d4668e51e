"""What driver and agents exchange over TCP: connections, messages, reports of the state of workers, and files."""
