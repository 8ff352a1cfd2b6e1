package rl

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/berth-hpc/berth/components/advisor/nn"
)

// CheckpointFormat is the version of what a checkpoint holds.
const CheckpointFormat = 1

// Header says what a checkpoint is: everything but the numbers. It holds no time of day: equal runs give equal files.
type Header struct {
	Format   int      `json:"format"`
	Config   Config   `json:"config"`
	Encoding Encoding `json:"encoding"`
	// Topology is the cluster it was trained on: node types in the site's order.
	Topology []string `json:"topology"`
	Data     Data     `json:"data"`
	Seed     uint64   `json:"seed"`
	Revision string   `json:"revision"`
	Steps    int64    `json:"steps"`
	// Actors says that others acted: such a training cannot be repeated to the bit.
	Actors  bool  `json:"actors,omitempty"`
	Updates int64 `json:"updates"`
	// RewardScale is what rewards were divided by; values of the critics are in this unit.
	RewardScale float64            `json:"rewardScale"`
	Metrics     map[string]float64 `json:"metrics,omitempty"`
	// ValueQuantiles are the 0.01, 0.05, 0.25, 0.5, 0.75, 0.95 and 0.99 quantiles of the value of the states last seen, for
	// guardrails.
	ValueQuantiles []float64 `json:"valueQuantiles,omitempty"`
}

// Checkpoint is a trained policy.
type Checkpoint struct {
	Header  Header
	Actor   *nn.Net[float32]
	Critics []*nn.Net[float32]
	// Digest is the sha256 of its file, in hex.
	Digest string
}

// Checkpoint takes a policy out of a learner. It shares no memory with it.
func (l *Learner) Checkpoint(h Header) *Checkpoint {
	h.Format, h.Config, h.Encoding, h.Seed, h.Updates, h.RewardScale = CheckpointFormat, l.Config, l.Encoding, l.Config.Seed, l.Updates, l.Scale.Scale()
	c := &Checkpoint{Header: h, Actor: l.Actor.Clone()}
	for _, n := range l.Critics {
		c.Critics = append(c.Critics, n.Clone())
	}
	return c
}

// netTensors names a network's parameters.
func netTensors(prefix string, n *nn.Net[float32]) []Tensor {
	var out []Tensor
	for _, t := range n.Spec.Layout() {
		shape := []int{t.Rows, t.Cols}
		if t.Rows == 0 {
			shape = shape[1:]
		}
		out = append(out, Tensor{Name: prefix + "." + t.Name, Shape: shape, Float: n.P[t.Offset : t.Offset+t.Len()]})
	}
	return out
}

// checkNet says whether there are the parameters of a network of a shape.
func checkNet(prefix string, s *nn.Spec, from map[string]Tensor) error {
	for _, t := range s.Layout() {
		name := prefix + "." + t.Name
		got, ok := from[name]
		if !ok {
			return fmt.Errorf("there is no tensor %s", name)
		}
		shape := []int{t.Rows, t.Cols}
		if t.Rows == 0 {
			shape = shape[1:]
		}
		if !slices.Equal(got.Shape, shape) || got.Float == nil {
			return fmt.Errorf("tensor %s has the shape %v, its network needs %v", name, got.Shape, shape)
		}
	}
	return nil
}

// loadNet fills a network's parameters.
func loadNet(prefix string, n *nn.Net[float32], from map[string]Tensor) error {
	if err := checkNet(prefix, &n.Spec, from); err != nil {
		return err
	}
	for _, t := range n.Spec.Layout() {
		copy(n.P[t.Offset:], from[prefix+"."+t.Name].Float)
	}
	n.Repack()
	return nil
}

// Encode gives the file and sets the digest.
func (c *Checkpoint) Encode() ([]byte, error) {
	h, err := json.Marshal(c.Header)
	if err != nil {
		return nil, err
	}
	ts := netTensors("actor", c.Actor)
	for i, n := range c.Critics {
		ts = append(ts, netTensors(fmt.Sprintf("critic.%d", i), n)...)
	}
	b, err := EncodeTensors(map[string]string{"berth": string(h)}, ts)
	if err != nil {
		return nil, err
	}
	c.Digest = digest(b)
	return b, nil
}

func digest(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// DecodeCheckpoint reads a checkpoint's file.
func DecodeCheckpoint(b []byte) (*Checkpoint, error) {
	meta, ts, err := DecodeTensors(b)
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{Digest: digest(b)}
	if err := strictJSON(meta["berth"], &c.Header); err != nil {
		return nil, fmt.Errorf("the header is not a checkpoint's: %w", err)
	}
	h := &c.Header
	if h.Format != CheckpointFormat {
		return nil, fmt.Errorf("the checkpoint is of format %d, this program reads %d", h.Format, CheckpointFormat)
	}
	if err := h.Config.Validate(); err != nil {
		return nil, err
	}
	if e := &h.Encoding; e.Row < 1 || e.Row > 4096 || e.Global < 0 || e.Global > 4096 ||
		len(e.Shift) != len(e.Scale) || len(e.Shift) != 0 && len(e.Shift) != e.Row+e.Global || slices.Contains(e.Scale, 0) {
		return nil, fmt.Errorf("the encoding of states (%d features, %d global, %d normalised) makes no sense", e.Row, e.Global, len(e.Shift))
	}
	load := func(prefix string, s nn.Spec) (*nn.Net[float32], error) {
		// Before there is memory for them: a header may claim widths that no memory has room for.
		if err := s.Validate(); err != nil {
			return nil, err
		}
		if err := checkNet(prefix, &s, ts); err != nil {
			return nil, err
		}
		n, err := nn.New[float32](s)
		if err != nil {
			return nil, err
		}
		return n, loadNet(prefix, n, ts)
	}
	w := h.Encoding.Width()
	if c.Actor, err = load("actor", h.Config.actorSpec(w)); err != nil {
		return nil, err
	}
	for i := range h.Config.Critics {
		n, err := load(fmt.Sprintf("critic.%d", i), h.Config.criticSpec(w))
		if err != nil {
			return nil, err
		}
		c.Critics = append(c.Critics, n)
	}
	return c, nil
}

func strictJSON(s string, v any) error {
	d := json.NewDecoder(strings.NewReader(s))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return fmt.Errorf("there is more after the value")
	}
	return nil
}

// LoadCheckpoint reads a file. Where the file is named after its digest, as training names it, the name must be right.
func LoadCheckpoint(path string) (*Checkpoint, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the checkpoint: %w", err)
	}
	if err := checkName(path, b); err != nil {
		return nil, err
	}
	c, err := DecodeCheckpoint(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// checkName compares a content-addressed file's name with its content.
func checkName(path string, b []byte) error {
	name := strings.TrimSuffix(filepath.Base(path), ".safetensors")
	if _, err := hex.DecodeString(name); err == nil && len(name) == 64 && name != digest(b) {
		return fmt.Errorf("%s: the content's sha256 is %s; the file is damaged, take another copy", path, digest(b))
	}
	return nil
}

// CheckTopology refuses a policy for a cluster of another kind, whose node types would mean other things. A different number of
// nodes is no fault: the networks score each action alone. It says so in note.
func (h *Header) CheckTopology(types []string) (note string, err error) {
	distinct := func(ts []string) []string {
		var out []string
		for _, t := range ts {
			if !slices.Contains(out, t) {
				out = append(out, t)
			}
		}
		return out
	}
	a, b := distinct(h.Topology), distinct(types)
	if !slices.Equal(a, b) {
		return "", fmt.Errorf("the checkpoint was trained on nodes of %s, in this order; the site has %s; train or fine-tune for it", strings.Join(a, ", "), strings.Join(b, ", "))
	}
	if !slices.Equal(h.Topology, types) {
		return fmt.Sprintf("trained on %d nodes, used on %d of the same types", len(h.Topology), len(types)), nil
	}
	return "", nil
}

// store writes a content-addressed file and gives its digest.
func store(dir string, b []byte) (string, error) {
	d := digest(b)
	path := filepath.Join(dir, d+".safetensors")
	if _, err := os.Stat(path); err == nil {
		return d, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if err := renameio.WriteFile(path, b, 0o644); err != nil {
		return "", fmt.Errorf("cannot write %s (what was written earlier is whole): %w", path, err)
	}
	return d, nil
}
