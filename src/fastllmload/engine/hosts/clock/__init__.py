"""The driver's clock on a host: exchanges of datagrams, and the instants that follow from them."""
