"""The pure core: no clock, randomness, files, sockets, threads or models. Time and ids are arguments."""
