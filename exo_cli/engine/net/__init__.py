"""Transports between nodes: `nng` is the real one, `memory` the one in this process. Both keep to `ports.Transport`."""
