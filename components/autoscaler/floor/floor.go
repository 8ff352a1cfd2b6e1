// Package floor says how many nodes of a pool stay up without work: its minimum, the times of the week that want more,
// and the room that is kept free. It is a function of the clock and of what slurmctld says, and does no I/O.
package floor

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/components/slurmrest"
)

// Load is what a pool's nodes in service do.
type Load struct {
	// Busy nodes have jobs.
	Busy int
	// FreeShares are the standard shares of cards that are free on busy nodes, and NodeShares those of an empty node.
	FreeShares, NodeShares int
}

// Want is how many nodes should be up at a time, busy ones counted, and which rule says so. It is at most spec.Max.
func Want(spec *v1alpha1.WorkerPoolSpec, load Load, now time.Time) (nodes int, because string, err error) {
	nodes, because = int(spec.Min), "min"
	location := time.UTC
	if spec.TimeZone != "" {
		if location, err = time.LoadLocation(spec.TimeZone); err != nil {
			return 0, "", fmt.Errorf("time zone %q of the schedule: %w", spec.TimeZone, err)
		}
	}
	for _, window := range spec.Schedule {
		open, err := isOpen(window, now.In(location))
		if err != nil {
			return 0, "", err
		}
		if open && int(window.Keep) > nodes {
			nodes, because = int(window.Keep), fmt.Sprintf("the schedule until %s", window.To)
		}
	}
	if room := spec.Headroom; room != nil {
		free := int(room.Nodes)
		if lack := int(room.Shares) - load.FreeShares; lack > 0 && load.NodeShares > 0 {
			free = max(free, (lack+load.NodeShares-1)/load.NodeShares)
		}
		if load.Busy+free > nodes && (room.Nodes > 0 || room.Shares > 0) {
			nodes, because = load.Busy+free, "headroom beside the busy nodes"
		}
	}
	return min(nodes, int(spec.Max)), because, nil
}

// minutes reads "08:00" as minutes of the day.
func minutes(clock string) (int, error) {
	var hour, minute int
	if n, err := fmt.Sscanf(clock, "%d:%d", &hour, &minute); err != nil || n != 2 || hour < 0 || minute < 0 || minute > 59 || hour*60+minute > 24*60 {
		return 0, fmt.Errorf("%q is no time of the day; write for example 08:00", clock)
	}
	return hour*60 + minute, nil
}

// isOpen tells whether the local time is in the window, by the clock on the wall: on the days that the clock is changed,
// a window is an hour longer or shorter.
func isOpen(window v1alpha1.KeepWindow, local time.Time) (bool, error) {
	from, err := minutes(window.From)
	if err != nil {
		return false, err
	}
	to, err := minutes(window.To)
	if err != nil {
		return false, err
	}
	at := local.Hour()*60 + local.Minute()
	for _, day := range window.Days {
		switch weekday := local.Weekday(); {
		case from < to && day == short(weekday) && at >= from && at < to:
			return true, nil
		case from >= to && day == short(weekday) && at >= from:
			return true, nil
		case from >= to && day == short((weekday+6)%7) && at < to: // it began yesterday
			return true, nil
		}
	}
	return false, nil
}

func short(day time.Weekday) string { return day.String()[:3] }

// Damp is the floor that holds after one with wanted nodes: more holds at once, fewer only when fewer have done for a
// while. So a short pause between two jobs gives no node away that is powered up again a moment later. Its memory is the
// floor before, which is kept in the WorkerPool's status.
func Damp(before *v1alpha1.Floor, wanted int, because string, now time.Time, while time.Duration) v1alpha1.Floor {
	floor := v1alpha1.Floor{Nodes: int32(wanted), Because: because}
	if wanted == 0 {
		floor.Because = ""
	}
	if before == nil || wanted >= int(before.Nodes) {
		return floor
	}
	since := before.LessSince
	if since == nil || since.Time.After(now) {
		at := metav1.NewTime(now)
		since = &at
	}
	if now.Sub(since.Time) >= while {
		return floor
	}
	return v1alpha1.Floor{Nodes: before.Nodes, Because: before.Because, LessSince: since}
}

// Shares counts the standard shares of percent each that a node's card has, and those in use. A whole card that is
// allocated as such (gpu:1) is in use with all its shares. A node without mps has none.
func Shares(node *slurmrest.Node, percent int) (all, used int, err error) {
	if percent <= 0 {
		return 0, 0, nil
	}
	has, err := slurmrest.ParseGRES(node.Gres)
	if err != nil {
		return 0, 0, fmt.Errorf("GRES of %s: %w", node.Name, err)
	}
	taken, err := slurmrest.ParseGRES(node.GresUsed)
	if err != nil {
		return 0, 0, fmt.Errorf("used GRES of %s: %w", node.Name, err)
	}
	all = int(slurmrest.CountGRES(has, "mps")) / percent
	used = (int(slurmrest.CountGRES(taken, "mps")) + percent - 1) / percent
	if cards := int(slurmrest.CountGRES(has, "gpu")); cards > 0 {
		used += int(slurmrest.CountGRES(taken, "gpu")) * all / cards
	}
	return all, min(used, all), nil
}
