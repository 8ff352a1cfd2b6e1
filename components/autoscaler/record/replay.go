package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/berth-hpc/berth/components/autoscaler/decision"
)

// longest is how long a line may be: the first of a pool of some thousand nodes is the longest.
const longest = 64 << 20

// Read gives a log's lines to each, one by one, with the pool's state that each leads to. A line that cannot be read ends it.
func Read(log io.Reader, each func(Round, State) error) error {
	states := map[string]State{}
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, longest)
	for n := 1; lines.Scan(); n++ {
		if len(strings.TrimSpace(lines.Text())) == 0 {
			continue
		}
		var round Round
		if err := json.Unmarshal(lines.Bytes(), &round); err != nil {
			return fmt.Errorf("line %d: not a round of the autoscaler's log, or cut off (%w); take what autoscaler decisions prints, or leave this line and those behind it out", n, err)
		}
		if round.WorkerPool == "" || round.At.IsZero() {
			return fmt.Errorf("line %d: not a round of the autoscaler's log: it names no pool or no time; take what autoscaler decisions prints", n)
		}
		before, known := states[round.WorkerPool]
		if !known && round.Pool == nil {
			return fmt.Errorf("line %d: the log begins in the middle: nothing before says what pool %s is; take the lines from the pool's first one on", n, round.WorkerPool)
		}
		states[round.WorkerPool] = before.After(round)
		if err := each(round, states[round.WorkerPool]); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			return fmt.Errorf("a line is longer than %d MiB: not a log of the autoscaler's", longest>>20)
		}
		return err
	}
	return nil
}

// Difference is a decision that this program takes otherwise than the log says, from the very same state; "" where there is none.
func Difference(round Round, state State) string {
	if round.Snapshot {
		return ""
	}
	now, _ := state.Decide(round.At)
	was := make([]decision.Action, len(round.Done))
	for i, done := range round.Done {
		was[i] = done.Action
	}
	a, b := listed(was), listed(now)
	if slices.Equal(a, b) {
		return ""
	}
	return fmt.Sprintf("recorded: %s; this program: %s", orNothing(a), orNothing(b))
}

// listed are actions in words, in one order.
func listed(actions []decision.Action) []string {
	out := make([]string, len(actions))
	for i, a := range actions {
		out[i] = fmt.Sprintf("%s %s (%s)", a.Kind, a.Node, a.Why)
	}
	slices.Sort(out)
	return out
}

func orNothing(actions []string) string {
	if len(actions) == 0 {
		return "nothing"
	}
	return strings.Join(actions, ", ")
}
