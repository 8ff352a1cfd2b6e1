package command

import (
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/berth-hpc/berth/components/advisor/rl"
)

func newTrainReport() *cobra.Command {
	return &cobra.Command{
		Use:   "report FOLDER",
		Short: "Say how a training went, and draw its curves into the folder",
		Long: `report prints what a training's first, middle and last points show and draws the curves of return, entropy, temperature and value
into FOLDER/curves-*.svg.`,
		Example: "  advisor train report runs/lab-42",
		Args:    cobra.ExactArgs(1),
		RunE:    func(c *cobra.Command, args []string) error { return trainReport(c.OutOrStdout(), args[0]) },
	}
}

// readCurve reads progress.csv as columns.
func readCurve(dir string) (names []string, cols map[string][]float64, err error) {
	path := filepath.Join(dir, "progress.csv")
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the training's curves: %w", err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) < 2 {
		return nil, nil, fmt.Errorf("%s holds no points yet", path)
	}
	cols = map[string][]float64{}
	for i, row := range rows[1:] {
		for k, name := range rows[0] {
			v, err := strconv.ParseFloat(row[k], 64)
			if err != nil {
				return nil, nil, fmt.Errorf("%s:%d: %q is not a number", path, i+2, row[k])
			}
			cols[name] = append(cols[name], v)
		}
	}
	return rows[0], cols, nil
}

func trainReport(w io.Writer, dir string) error {
	latest, err := rl.ReadLatest(dir)
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	_, cols, err := readCurve(dir)
	if err != nil {
		return err
	}
	c, err := rl.LoadCheckpoint(filepath.Join(dir, "checkpoints", latest.Checkpoint+".safetensors"))
	if err != nil {
		return err
	}
	h := &c.Header
	fmt.Fprintf(w, "checkpoint  %s\nsteps       %d, %d critic updates\nlearner     iqn %v, risk %s, seed %d\ndata        %s %s\n", c.Digest, h.Steps, h.Updates, h.Config.IQN, h.Config.Risk, h.Seed, h.Data.Source, h.Data.Split)
	n := len(cols["step"])
	fmt.Fprintf(w, "%-12s %12s %12s %12s\n", "", "first", "middle", "last")
	for _, name := range []string{"step", "return", "length", "entropy", "alpha", "q", "q_spread", "critic_loss", "level"} {
		v := cols[name]
		if len(v) != n {
			return fmt.Errorf("%s: the column %s is missing", filepath.Join(dir, "progress.csv"), name)
		}
		fmt.Fprintf(w, "%-12s %12.5g %12.5g %12.5g\n", name, v[0], v[n/2], v[n-1])
	}
	if a := cols["alpha"][n-1]; a > 2.7 && !h.Config.FixedAlpha {
		fmt.Fprintf(w, "ALARM       the temperature is at its upper bound: an entropy of %g·log|A| is out of reach; lower --entropy-target\n", h.Config.EntropyTarget)
	}
	for _, name := range []string{"return", "entropy", "alpha", "q"} {
		path := filepath.Join(dir, "curves-"+name+".svg")
		if err := drawCurve(path, name, cols["step"], cols[name]); err != nil {
			return fmt.Errorf("cannot draw %s: %w", path, err)
		}
		fmt.Fprintf(w, "curve       %s\n", path)
	}
	return nil
}

func drawCurve(path, name string, x, y []float64) error {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "step", name
	pts := make(plotter.XYs, len(x))
	for i := range x {
		pts[i].X, pts[i].Y = x[i], y[i]
	}
	l, err := plotter.NewLine(pts)
	if err != nil {
		return err
	}
	p.Add(l, plotter.NewGrid())
	return p.Save(16*vg.Centimeter, 9*vg.Centimeter, path)
}
