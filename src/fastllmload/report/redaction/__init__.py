"""Documents without what must not be public: names, capacity limits, loads."""
