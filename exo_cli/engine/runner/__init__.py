"""Runners: the child process that holds a shard, and its supervisor in the node."""
