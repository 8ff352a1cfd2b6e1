// Package decision says what a pool's pods and Slurm nodes need next, as a pure function of what slurmctld and
// Kubernetes say of them now. Slurm decides which nodes are up; this package only makes the two agree, one safe step at
// a time, so that a crash between two steps leaves a state that the next call goes on from. It does no I/O and keeps
// nothing between calls.
package decision
