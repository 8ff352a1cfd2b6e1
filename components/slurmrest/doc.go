// Package slurmrest is Berth's client of Slurm's REST API (slurmrestd, data parser v0.0.42): nodes, node updates, ping,
// statistics, and jobs' states. It turns answers into types that cannot be half right: an answer with an error inside, an
// empty node list, a node without a name or a list from another API version is an error, never an empty result. It
// decides nothing.
package slurmrest
