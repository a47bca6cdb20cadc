"""How several ranks compute one model together: one module a strategy, and the ring they share."""
