package anchor

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/berth-hpc/berth/components/advisor/sim/compat/lublin"
	"github.com/berth-hpc/berth/components/advisor/sim/metrics"
	"github.com/berth-hpc/berth/components/advisor/sim/policy"
	"github.com/berth-hpc/berth/components/advisor/sim/pool"
	"github.com/berth-hpc/berth/components/advisor/sim/trace"
	"github.com/berth-hpc/berth/components/advisor/sim/workload"
)

// The published evaluation: ten sequences of 1,024 jobs chosen with seed 1 from a log of which at most the first 10,000 jobs
// count, on 256 processors for the Lublin logs.
const (
	sequenceLength = 1024
	sequenceCount  = 10
	sequenceSeed   = 1
	logSlice       = 10000
)

// LublinRow is one line of the table: a policy with and without the original's backfill.
type LublinRow struct {
	Policy   string
	Backfill bool
	lublin.Sequence
}

// Sequences cuts the evaluation's sequences out of a log.
func Sequences(path string) ([][]workload.Job, int, error) {
	jobs, procs, err := readLog(path, 10*workload.Second)
	if err != nil {
		return nil, 0, err
	}
	jobs = slices.DeleteFunc(jobs, func(j workload.Job) bool { return j.Run == 0 })
	slices.SortStableFunc(jobs, func(a, b workload.Job) int { return int(a.ID - b.ID) })
	jobs = jobs[:min(len(jobs), logSlice)]
	starts := lublin.Starts(len(jobs), sequenceLength, sequenceCount, sequenceSeed)
	if starts == nil {
		return nil, 0, fmt.Errorf("%s: %d jobs are too few for sequences of %d with the evaluation's margins; at least %d are needed",
			path, len(jobs), sequenceLength, 2*sequenceLength+2)
	}
	out := make([][]workload.Job, len(starts))
	for i, s := range starts {
		out[i] = jobs[s : s+sequenceLength]
	}
	return out, procs, nil
}

// readLog reads a log and how many processors its machine had (256 where it does not say).
func readLog(path string, unknownRun workload.Time) ([]workload.Job, int, error) {
	t, err := trace.Open(path, trace.Options{Format: "swf", UnknownRun: unknownRun})
	if err != nil {
		return nil, 0, err
	}
	defer t.Close()
	jobs, err := workload.Collect(t.Jobs())
	if err != nil {
		return nil, 0, err
	}
	procs := 256
	if s := t.Report.Header["MaxProcs"]; s != "" {
		if _, err := fmt.Sscan(s, &procs); err != nil || procs <= 0 {
			return nil, 0, fmt.Errorf("%s: MaxProcs is %q", path, s)
		}
	}
	return jobs, procs, nil
}

// LublinTable evaluates every policy of the published table on a log.
func LublinTable(path string, procs int) ([]LublinRow, error) {
	seqs, own, err := Sequences(path)
	if err != nil {
		return nil, err
	}
	if procs == 0 {
		procs = own
	}
	var rows []LublinRow
	for _, backfill := range []bool{false, true} {
		for _, p := range []string{"fcfs", "wfp3", "unicep", "sjf", "f1"} {
			row := LublinRow{Policy: p, Backfill: backfill}
			for _, jobs := range seqs {
				s, err := lublin.Evaluate(jobs, lublin.Options{Procs: procs, Policy: p, Backfill: backfill, NegativeWait: true})
				if err != nil {
					return nil, err
				}
				row.BSLD += s.BSLD / sequenceCount
				row.Wait += s.Wait / sequenceCount
				row.Turnaround += s.Turnaround / sequenceCount
				row.Utilisation += s.Utilisation / sequenceCount
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// TextbookRow is one discipline on the same sequences, with textbook semantics.
type TextbookRow struct {
	Discipline          string
	BSLD, Wait, MaxWait float64
	PerSequence         []float64
}

// TextbookDisciplines are the lines of the textbook table.
var TextbookDisciplines = []string{"fcfs", "fcfs+easy", "fcfs+easy-sjf", "fcfs+easy-saf", "fcfs+conservative", "sjf", "f1", "sjf+easy", "f1+easy", "saf+easy"}

// TextbookTable evaluates disciplines on the sequences of a log.
func TextbookTable(path string, procs int, disciplines []string) ([]TextbookRow, error) {
	seqs, own, err := Sequences(path)
	if err != nil {
		return nil, err
	}
	if procs == 0 {
		procs = own
	}
	var rows []TextbookRow
	for _, name := range disciplines {
		row := TextbookRow{Discipline: name}
		for _, jobs := range seqs {
			s, _, err := runPool(jobs, procs, name)
			if err != nil {
				return nil, err
			}
			row.PerSequence = append(row.PerSequence, s.MeanBSLD)
			row.BSLD += s.MeanBSLD / sequenceCount
			row.Wait += s.MeanWait / sequenceCount
			row.MaxWait = max(row.MaxWait, s.Max)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func runPool(jobs []workload.Job, procs int, discipline string) (metrics.Summary, *pool.Stats, error) {
	d, err := policy.ParseDiscipline(discipline)
	if err != nil {
		return metrics.Summary{}, nil, err
	}
	var c metrics.Collector
	st, err := pool.Run(pool.Config{Procs: int32(procs), Discipline: d}, workload.FromSlice(jobs), func(r *pool.Result) {
		c.Add(&metrics.Job{ID: r.ID, Submit: r.Submit, Start: r.Start, End: r.End, Service: r.End - r.Start, Width: float64(r.Procs)})
	})
	if err != nil {
		return metrics.Summary{}, nil, err
	}
	return c.Summary(float64(procs)), st, nil
}

// published cells of Anchor A.
var (
	publishedBSLD = map[bool]map[string]float64{
		false: {"fcfs": 7273.77, "wfp3": 19753.53, "unicep": 22274.74, "sjf": 277.35, "f1": 258.37},
		true:  {"fcfs": 235.82, "wfp3": 133.87, "unicep": 307.23, "sjf": 73.31, "f1": 75.07},
	}
	publishedUtilisation = map[bool]map[string]float64{
		false: {"fcfs": .657, "wfp3": .747, "unicep": .691, "sjf": .762, "f1": .816},
		true:  {"fcfs": .868, "wfp3": .864, "unicep": .883, "sjf": .778, "f1": .840},
	}
	// The reference values of an independent simulator, in full precision where they were handed out.
	textbookBSLD = map[string]float64{
		"fcfs": 7273.771360487951, "fcfs+easy": 271.40401811861494, "fcfs+easy-sjf": 140.81481150030433, "fcfs+conservative": 261.3211931139234,
		"sjf": 47.157867371977574,
	}
	// Printed with two digits.
	textbookPrinted = map[string]float64{"f1": 34.53, "sjf+easy": 42.08, "f1+easy": 35.26, "saf+easy": 34.38, "fcfs+easy-saf": 142.28}
	textbookWait    = map[string]float64{
		"fcfs": 258203, "fcfs+easy": 24058, "fcfs+easy-sjf": 19633, "fcfs+easy-saf": 18929, "fcfs+conservative": 28663, "sjf": 40814, "f1": 11297,
		"sjf+easy": 13712, "f1+easy": 11225, "saf+easy": 10656,
	}
	hpc2n = []struct {
		discipline     string
		bsld, wait     float64
		makespan       float64
		p95Wait, worst float64
	}{
		{"fcfs", 49.32017792550723, 5606.3375394321765, 5309576, 25648, 78517},
		{"fcfs+easy", 19.039749079331756, 3543.2119873817037, 5282045, 20524, 81059},
		{"fcfs+easy-sjf", 17.413724564424484, 3227.754574132492, 5282045, 18810, 81556},
		{"fcfs+conservative", 19.386717852101796, 3668.1258675078866, 5282045, 20779, 79451},
	}
)

// digits says that a value prints as the published one does with so many decimals.
func digits(published, ours float64, decimals int) bool {
	return fmt.Sprintf("%.*f", decimals, published) == fmt.Sprintf("%.*f", decimals, ours)
}

// within says that two values agree to a relative difference.
func within(published, ours, rel float64) bool {
	return math.Abs(ours-published) <= rel*math.Abs(published)
}

// Lublin checks all cells of Anchor A.
func Lublin(shared string, emit func(Cell)) error {
	log := filepath.Join(shared, "traces", "swf", "lublin_256.swf")
	rows, err := LublinTable(log, 0)
	if err != nil {
		return err
	}
	for _, r := range rows {
		name := r.Policy + "/" + map[bool]string{false: "none", true: "backfill"}[r.Backfill]
		p := publishedBSLD[r.Backfill][r.Policy]
		emit(Cell{"lublin", name + "/bsld", p, r.BSLD, 2, digits(p, r.BSLD, 2)})
		p = publishedUtilisation[r.Backfill][r.Policy]
		emit(Cell{"lublin", name + "/utilisation", p, r.Utilisation, 3, digits(p, r.Utilisation, 3)})
	}
	text, err := TextbookTable(log, 0, TextbookDisciplines)
	if err != nil {
		return err
	}
	for _, r := range text {
		if p, ok := textbookBSLD[r.Discipline]; ok {
			emit(Cell{"textbook", r.Discipline + "/bsld", p, r.BSLD, 6, within(p, r.BSLD, 1e-6)})
		} else {
			p := textbookPrinted[r.Discipline]
			emit(Cell{"textbook", r.Discipline + "/bsld", p, r.BSLD, 2, digits(p, r.BSLD, 2)})
		}
		p := textbookWait[r.Discipline]
		emit(Cell{"textbook", r.Discipline + "/wait", p, r.Wait, 0, digits(p, r.Wait, 0)})
	}
	return nil
}

// HPC2N checks the differential rows with user estimates. The 25 jobs of unknown run time count as 10 s, as in the reference.
func HPC2N(shared string, emit func(Cell)) error {
	jobs, _, err := readLog(filepath.Join(shared, "traces", "swf", "hpc2n.swf"), 10*workload.Second)
	if err != nil {
		return err
	}
	for _, row := range hpc2n {
		s, _, err := runPool(jobs, 240, row.discipline)
		if err != nil {
			return err
		}
		emit(Cell{"hpc2n", row.discipline + "/bsld", row.bsld, s.MeanBSLD, 6, within(row.bsld, s.MeanBSLD, 1e-6)})
		emit(Cell{"hpc2n", row.discipline + "/wait", row.wait, s.MeanWait, 6, within(row.wait, s.MeanWait, 1e-6)})
		emit(Cell{"hpc2n", row.discipline + "/makespan", row.makespan, s.Makespan, 0, digits(row.makespan, s.Makespan, 0)})
		emit(Cell{"hpc2n", row.discipline + "/maxwait", row.worst, s.Max, 0, digits(row.worst, s.Max, 0)})
	}
	return nil
}
