"""The engine: a pure core, the adapters around it, and the node that joins them. It never speaks to a terminal."""
