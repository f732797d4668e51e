"""What is sent and when: bodies, conversations, instants, slots of a closed loop."""
