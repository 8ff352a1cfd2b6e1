// Package guard keeps slurmctld's configuration: it tries every new generation of a SlurmConfig on a scratch slurmctld,
// applies it where no job is hurt by that, keeps the last accepted one otherwise, and says which in the status. It also
// keeps the accounts, users and QOS of the SlurmConfig in Slurm's database, and its reservations in slurmctld. It never
// starts, stops or restarts slurmctld.
package guard
