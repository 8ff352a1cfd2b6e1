// Package sim is the root of Berth's trace-driven, event-driven cluster simulator. It holds no code of its own: the
// packages beneath it each do one thing.
//
//	workload   jobs, what a policy may see of them, and streams of them
//	trace      importers and exporters of the field's formats
//	generate   synthetic workloads with the offered load set explicitly
//	random     reproducible streams of random numbers, split by purpose
//	policy     the orders in which waiting jobs are considered
//	queue      the indexed waiting queue and the availability profile
//	pool       the engine for rigid jobs on identical processors (the parallel-workload classic)
//	cluster    nodes, cards, shares of cards, speeds and co-location
//	placement  on which node and card a job goes
//	engine     the engine for heterogeneous GPU clusters
//	fairshare  Slurm's multifactor priority, classic fair share and Fair Tree
//	metrics    job metrics, quantiles and summaries
//	plot       Gantt charts and distribution functions
//	compat     the exact semantics of published simulators, to reproduce published tables
//	anchor     the published tables, cell by cell, beside ours
//	bench      speed measurements
//	env        the simulator as a reinforcement-learning environment
//
// Time is int64 microseconds everywhere; equal seeds give equal bytes on any machine and any GOMAXPROCS.
package sim
