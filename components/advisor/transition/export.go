package transition

import (
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"
)

// Row is a job in an export: all that was written of it, in one row. Times are Unix seconds, 0 where not known.
type Row struct {
	Cluster      string  `parquet:"cluster,dict"`
	Job          int64   `parquet:"job"`
	Submit       int64   `parquet:"submit"`
	Name         string  `parquet:"name,dict"`
	User         string  `parquet:"user,dict"`
	Account      string  `parquet:"account,dict"`
	Partition    string  `parquet:"partition,dict"`
	QOS          string  `parquet:"qos,dict"`
	LimitMinutes int64   `parquet:"limit_minutes"`
	TRES         string  `parquet:"tres,dict"`
	Waiting      int64   `parquet:"waiting"`
	Advised      bool    `parquet:"advised"`
	Boost        int64   `parquet:"boost"`
	Advice       int64   `parquet:"advice"`
	Value        float64 `parquet:"value"`
	Mode         string  `parquet:"mode,dict"`
	Checkpoint   string  `parquet:"checkpoint,dict"`
	Abstain      string  `parquet:"abstain,dict"`
	Nodes        string  `parquet:"nodes,dict"`
	Started      int64   `parquet:"started"`
	Ended        int64   `parquet:"ended"`
	State        string  `parquet:"state,dict"`
	Exit         string  `parquet:"exit,dict"`
	Wait         int64   `parquet:"wait"` // seconds from submission to start; −1: not known
	JCT          int64   `parquet:"jct"`  // seconds from submission to end; −1: not known
}

// add lays a record over the row.
func (row *Row) add(r *Record) {
	row.Cluster, row.Job, row.Submit = r.Cluster, r.Job, r.Submit
	if f := r.Features; f != nil {
		row.Name, row.User, row.Account, row.Partition, row.QOS = f.Name, f.User, f.Account, f.Partition, f.QOS
		row.LimitMinutes, row.TRES, row.Waiting = f.LimitMinutes, f.TRES, int64(f.Waiting)
	}
	if a := r.Advice; a != nil {
		row.Advised, row.Boost, row.Advice, row.Value = true, int64(a.Boost), int64(a.Advice), a.Value
		row.Mode, row.Checkpoint, row.Abstain = a.Mode, a.Checkpoint, a.Abstain
	}
	if r.Nodes != "" {
		row.Nodes = r.Nodes
	}
	if r.Started != 0 {
		row.Started = r.Started
	}
	if r.Event == End {
		row.Ended, row.State, row.Exit = r.Ended, r.State, r.Exit
	}
	row.Wait, row.JCT = -1, -1
	if row.Started >= row.Submit && row.Submit > 0 {
		row.Wait = row.Started - row.Submit
	}
	if row.Ended >= row.Submit && row.Submit > 0 {
		row.JCT = row.Ended - row.Submit
	}
}

// Rows joins a log's records to one row a job, in the order in which jobs were first seen.
func Rows(dir string, bad func(Problem) error) ([]Row, error) {
	index := map[key]int{}
	var rows []Row
	err := Read(dir, func(r *Record) error {
		k := key{r.Job, r.Submit}
		i, known := index[k]
		if !known {
			i = len(rows)
			index[k] = i
			rows = append(rows, Row{})
		}
		rows[i].add(r)
		return nil
	}, bad)
	return rows, err
}

// Export writes rows as Parquet.
func Export(w io.Writer, rows []Row) error {
	writer := parquet.NewGenericWriter[Row](w, parquet.Compression(&parquet.Zstd))
	if _, err := writer.Write(rows); err != nil {
		return fmt.Errorf("write Parquet: %w", err)
	}
	if err := writer.Close(); err != nil {
		return fmt.Errorf("write Parquet: %w", err)
	}
	return nil
}

// Statistics are a log's counts.
type Statistics struct {
	Jobs, Started, Ended, Advised, Abstained int
	// Quantiles of the wait and of the JCT, in seconds: 50th, 95th and 99th percentile.
	Wait, JCT [3]int64
}

// Summarize counts.
func Summarize(rows []Row) Statistics {
	s := Statistics{Jobs: len(rows)}
	var waits, jcts []int64
	for i := range rows {
		r := &rows[i]
		if r.Started > 0 {
			s.Started++
		}
		if r.State != "" {
			s.Ended++
		}
		if r.Advised && r.Abstain == "" {
			s.Advised++
		}
		if r.Abstain != "" {
			s.Abstained++
		}
		if r.Wait >= 0 {
			waits = append(waits, r.Wait)
		}
		if r.JCT >= 0 {
			jcts = append(jcts, r.JCT)
		}
	}
	s.Wait, s.JCT = quantiles(waits), quantiles(jcts)
	return s
}

func quantiles(of []int64) (out [3]int64) {
	if len(of) == 0 {
		return out
	}
	slices.Sort(of)
	for i, q := range []float64{0.5, 0.95, 0.99} {
		out[i] = of[min(int(q*float64(len(of))), len(of)-1)]
	}
	return out
}
