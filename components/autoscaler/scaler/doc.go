// Package scaler is the autoscaler's loop: it reads Slurm's node states and the pods, lets package decision say what is
// next, and does it. It holds what the loop needs between two rounds (the last answer, so that an unchanged one costs
// nothing) and nothing that a restart could miss.
package scaler
