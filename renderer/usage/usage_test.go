package usage_test

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/renderer/site"
	"github.com/berth-hpc/berth/renderer/usage"
)

// shardSite has cards that are divided in four, and a pool whose name begins with another's.
func shardSite() *site.Site {
	return &site.Site{Name: "lab", Pools: map[string]site.Pool{
		"card": {}, "card-shards": {Sharing: site.Sharing{Shard: &site.Shard{Count: 8}}},
		"shards": {Sharing: site.Sharing{Shard: &site.Shard{Count: 4}}},
	}}
}

func query() usage.Query {
	return usage.Query{Start: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), End: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)}
}

func read(t *testing.T, q usage.Query, answer string) (*usage.Report, []string) {
	t.Helper()
	var asked []string
	r, err := usage.Read(t.Context(), shardSite(), q, func(_ context.Context, argv ...string) (string, error) {
		asked = argv
		return answer, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return r, asked
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// Whole cards, percents, shards by the pool that the nodes are of, and jobs that had nothing.
func TestResources(t *testing.T) {
	for _, c := range []struct {
		line       string
		jobs       int
		cpus, gpus float64
		uncounted  int
	}{
		{"vision|student|7200|slurm-worker-card-0|billing=2,cpu=2,gres/gpu:rtx4070=1,gres/gpu=1,mem=1G,node=1", 1, 4, 2, 0},
		{"vision|student|3600|slurm-worker-card-0|billing=1,cpu=1,gres/mps:rtx4070=25,gres/mps=25,mem=1G,node=1", 1, 1, 0.25, 0},
		{"vision|student|3600|slurm-worker-shards-0|cpu=1,gres/shard=1,node=1", 1, 1, 0.25, 0},
		{"vision|student|3600|slurm-worker-card-shards-[0-1]|cpu=2,gres/shard=4,node=2", 1, 2, 0.5, 0},
		{"vision|student|3600|slurm-worker-card-0|cpu=1,gres/shard=1,node=1", 1, 1, 0, 1},
		{"vision|student|3600|slurm-worker-gone-0|cpu=1,gres/shard=1,node=1", 1, 1, 0, 1},
		{"vision|student|0|None assigned|", 0, 0, 0, 0},
		{"vision|student|0|slurm-worker-card-0|cpu=1,node=1", 0, 0, 0, 0},
	} {
		r, _ := read(t, query(), c.line+"\n")
		if r.Total.Jobs != c.jobs || !near(r.Total.CPUHours, c.cpus) || !near(r.Total.GPUHours, c.gpus) || r.Uncounted != c.uncounted {
			t.Errorf("%s: %+v, %d not counted", c.line, r.Total, r.Uncounted)
		}
	}
}

func TestWrongAnswers(t *testing.T) {
	for answer, want := range map[string]string{
		"vision|student|5\n":                   "which is no job",
		"vision|student|soon|n|cpu=1\n":        "not in seconds",
		"vision|student|5|n|cpu=many,node=1\n": "cpu=many is no count",
	} {
		_, err := usage.Read(t.Context(), shardSite(), query(), func(context.Context, ...string) (string, error) { return answer, nil })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", answer, err, want)
		}
	}
	lost := errors.New("lost")
	if _, err := usage.Read(t.Context(), shardSite(), query(), func(context.Context, ...string) (string, error) { return "", lost }); !errors.Is(err, lost) {
		t.Error(err)
	}
}

const three = "vision|zoe|36000|slurm-worker-card-0|cpu=2,gres/gpu=1,node=1\n" +
	"language|adam|3600|slurm-worker-card-0|cpu=2,gres/mps=50,node=1\n" +
	"vision|adam|3600|slurm-worker-card-0|cpu=4,node=1\n"

func TestRowsAndWhatIsAsked(t *testing.T) {
	q := query()
	q.Accounts, q.Users = []string{"vision", "language"}, []string{"adam"}
	r, asked := read(t, q, three)
	var names []string
	for _, row := range r.Rows {
		names = append(names, row.Name())
	}
	if !slices.Equal(names, []string{"language/adam", "vision/adam", "vision/zoe"}) || r.Total.Jobs != 3 || !near(r.Total.GPUHours, 10.5) {
		t.Errorf("rows %v, total %+v", names, r.Total)
	}
	for _, want := range []string{"--starttime=uts1793491200", "--endtime=uts1796083200", "--accounts=vision,language", "--uid=adam", "--truncate", "--duplicates"} {
		if !slices.Contains(asked, want) {
			t.Errorf("sacct is not asked for %s: %v", want, asked)
		}
	}
	q.ByAccount = true
	if r, _ = read(t, q, three); len(r.Rows) != 2 || r.Rows[1].Name() != "vision" || r.Rows[1].Jobs != 2 || !near(r.Rows[1].CPUHours, 24) {
		t.Errorf("by account: %+v", r.Rows)
	}
}

func TestCSVAndChart(t *testing.T) {
	r, _ := read(t, query(), three)
	var out bytes.Buffer
	if err := r.CSV(&out); err != nil {
		t.Fatal(err)
	}
	const csv = "account,user,jobs,cpu_hours,gpu_hours\nlanguage,adam,1,2.0000,0.5000\nvision,adam,1,4.0000,0.0000\nvision,zoe,1,20.0000,10.0000\n"
	if out.String() != csv {
		t.Errorf("CSV:\n%s", out.String())
	}
	out.Reset()
	if err := r.Chart(&out, 10); err != nil {
		t.Fatal(err)
	}
	const chart = "GPU-hours, 2026-11-01 00:00 UTC to 2026-12-01 00:00 UTC\nlanguage/adam  ▌ 0.50\nvision/adam     0\nvision/zoe     ██████████ 10.00\n"
	if out.String() != chart {
		t.Errorf("chart:\n%s", out.String())
	}
	none, _ := read(t, query(), "")
	out.Reset()
	if err := none.Chart(&out, 10); err != nil || out.String() != "CPU-hours, 2026-11-01 00:00 UTC to 2026-12-01 00:00 UTC\n" {
		t.Errorf("of nothing: %q, %v", out.String(), err)
	}
}

// The picture is XML with a bar for each row, whatever is in a name.
func TestSVG(t *testing.T) {
	r, _ := read(t, query(), three+"a<b&c|\"x\"|3600|n|cpu=1\n")
	var out bytes.Buffer
	if err := r.SVG(&out); err != nil {
		t.Fatal(err)
	}
	bars, decoder := 0, xml.NewDecoder(&out)
	for {
		token, err := decoder.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "rect" {
			bars++
		}
	}
	if bars != 4 {
		t.Errorf("%d bars for 4 rows", bars)
	}
}
