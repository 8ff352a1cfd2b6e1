// Package mps shares a worker's one card among jobs by CUDA MPS. Slurm's gres/mps only counts and sets a percentage; here is the rest:
// a supervisor in the worker pod that owns NVIDIA's control daemon (package supervisor), and Slurm's hooks that ask it (package
// command).
package mps
