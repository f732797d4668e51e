"""Events of a stream, sans-IO: from payload bytes to what each event means."""
