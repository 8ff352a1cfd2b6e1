package reservation

import (
	"fmt"
	"slices"
	"time"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
)

// layout is how a SlurmConfig and scontrol write a moment.
const layout = "2006-01-02T15:04:05"

// window is one occurrence of a reservation.
type window struct{ start, end time.Time }

// step leads from one occurrence to the next; nil: there is no next. Slurm repeats by the calendar of slurmctld's time
// zone, so that a class at ten stays at ten when the clocks change.
func step(flags []string) func(time.Time) time.Time {
	days := func(n int) func(time.Time) time.Time {
		return func(t time.Time) time.Time { return t.AddDate(0, 0, n) }
	}
	until := func(holds func(time.Weekday) bool) func(time.Time) time.Time {
		return func(t time.Time) time.Time {
			for t = t.AddDate(0, 0, 1); !holds(t.Weekday()); t = t.AddDate(0, 0, 1) {
			}
			return t
		}
	}
	weekend := func(day time.Weekday) bool { return day == time.Saturday || day == time.Sunday }
	for _, repeats := range []struct {
		flag string
		step func(time.Time) time.Time
	}{
		{"HOURLY", func(t time.Time) time.Time { return t.Add(time.Hour) }},
		{"DAILY", days(1)},
		{"WEEKLY", days(7)},
		{"WEEKDAY", until(func(day time.Weekday) bool { return !weekend(day) })},
		{"WEEKEND", until(weekend)},
	} {
		if slices.Contains(flags, repeats.flag) {
			return repeats.step
		}
	}
	return nil
}

// first reads when a reservation begins for the first time, in the zone of the cluster.
func first(r v1alpha1.Reservation, zone *time.Location) (time.Time, error) {
	start, err := time.ParseInLocation(layout, r.Start, zone)
	if err != nil {
		return time.Time{}, fmt.Errorf("start %q is no moment; write for example 2026-10-01T08:00:00", r.Start)
	}
	return start, nil
}

// late is how far in the past slurmctld takes a start; its own bound is ten minutes.
const late = 9 * time.Minute

// due returns the occurrence that a reservation which does not exist yet is made for: the one that is going on or the next;
// false: all are over. One that began too long ago for slurmctld begins now, or, where it repeats (by its start), with
// the next.
func due(r v1alpha1.Reservation, zone *time.Location, now time.Time) (window, bool, error) {
	start, err := first(r, zone)
	if err != nil {
		return window{}, false, err
	}
	length := time.Duration(r.Duration) * time.Second
	next := step(r.Flags)
	for ; next != nil && start.Before(now.Add(-late)); start = next(start) {
	}
	end := start.Add(length)
	if !end.After(now) {
		return window{}, false, nil
	}
	if start.Before(now) && next == nil {
		start = now
	}
	return window{start, end}, true, nil
}

// agrees tells whether a reservation that exists is an occurrence of the wanted one. That one began earlier than wanted
// does not matter once both have begun.
func agrees(r v1alpha1.Reservation, zone *time.Location, have window, now time.Time) (bool, error) {
	start, err := first(r, zone)
	if err != nil {
		return false, err
	}
	length := time.Duration(r.Duration) * time.Second
	next := step(r.Flags)
	if next == nil {
		begun := !start.After(now) && !have.start.After(now)
		return have.end.Equal(start.Add(length)) && (begun || have.start.Equal(start)), nil
	}
	for start.Before(have.start) {
		start = next(start)
	}
	return have.start.Equal(start) && have.end.Equal(start.Add(length)), nil
}
