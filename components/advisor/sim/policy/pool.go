package policy

import (
	"fmt"
	"strings"
)

// Backfill says what happens behind a waiting job that does not fit.
type Backfill uint8

// The kinds of backfill.
const (
	// None: nobody passes the blocked head of the queue.
	None Backfill = iota
	// EASY: one reservation, for the head; others start now if they do not delay it (Lifka 1995; Mu'alem and Feitelson 2001).
	EASY
	// Conservative: everybody has a reservation.
	Conservative
	// Greedy: whatever fits starts now, in order, with no reservation at all.
	Greedy
)

// String names the kind.
func (b Backfill) String() string { return [...]string{"none", "easy", "conservative", "greedy"}[b] }

// Discipline is an order of the queue and what may pass its head. BackfillOrder nil means the order itself.
type Discipline struct {
	Order         Order
	Backfill      Backfill
	BackfillOrder Order
}

// Candidates gives the order in which jobs behind the head are tried.
func (d Discipline) Candidates() Order {
	if d.BackfillOrder == nil {
		return d.Order
	}
	return d.BackfillOrder
}

// Name is the discipline in the syntax ParseDiscipline reads.
func (d Discipline) Name() string {
	s := d.Order.Name()
	if d.Backfill != None {
		s += "+" + d.Backfill.String()
	}
	if d.BackfillOrder != nil && d.BackfillOrder.Name() != d.Order.Name() {
		s += "-" + d.BackfillOrder.Name()
	}
	return s
}

// ParseDiscipline reads ORDER, ORDER+easy, ORDER+easy-ORDER2, ORDER+conservative and ORDER+greedy; "easy", "sjbf" and
// "conservative" alone stand for fcfs+easy, fcfs+easy-sjf and fcfs+conservative.
func ParseDiscipline(s string) (Discipline, error) {
	switch s {
	case "easy":
		s = "fcfs+easy"
	case "sjbf":
		s = "fcfs+easy-sjf"
	case "conservative":
		s = "fcfs+conservative"
	}
	name, rest, has := strings.Cut(s, "+")
	o, err := OrderByName(name)
	if err != nil {
		return Discipline{}, err
	}
	d := Discipline{Order: o}
	if !has {
		return d, nil
	}
	kind, second, two := strings.Cut(rest, "-")
	switch kind {
	case "easy":
		d.Backfill = EASY
	case "conservative":
		d.Backfill = Conservative
	case "greedy":
		d.Backfill = Greedy
	default:
		return Discipline{}, fmt.Errorf("no backfill is called %q; use easy, conservative or greedy, as in %s+easy", kind, name)
	}
	if two {
		if d.BackfillOrder, err = OrderByName(second); err != nil {
			return Discipline{}, err
		}
	}
	return d, nil
}
