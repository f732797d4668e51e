"""What the kernel and the compiler are asked for: sockets, clocks, assertions."""
