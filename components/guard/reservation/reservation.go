// Package reservation keeps slurmctld's reservations as a SlurmConfig names them, through scontrol: the REST API of Slurm
// 24.11 only reads them. It marks those that it makes, and never touches one without its mark.
package reservation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/components/slurmrest/hostlist"
)

// mark is the comment of a reservation that is ours.
const mark = "berth"

// callTimeout bounds one scontrol call.
const callTimeout = 30 * time.Second

// Runner runs a Slurm client and returns what it printed. Clients print and read moments in UTC.
type Runner interface {
	Run(ctx context.Context, timeout time.Duration, name string, args ...string) (string, error)
}

// Keeper keeps the reservations of one slurmctld.
type Keeper struct {
	Programs Runner
	// Zone is the cluster's time zone.
	Zone *time.Location
}

// existing is a reservation of slurmctld's.
type existing struct {
	window          window
	all             bool // of all nodes
	nodes           []string
	users, accounts []string
	flags           []string
	ours            bool
}

// Reconcile makes, changes and deletes until slurmctld has the wanted reservations, and returns what it did. What
// slurmctld does not do now (jobs run on the nodes, or in a reservation that should go) is an error in its own words; the
// others are kept all the same.
func (k *Keeper) Reconcile(ctx context.Context, wanted []v1alpha1.Reservation) ([]string, error) {
	have, err := k.read(ctx)
	if err != nil {
		return nil, err
	}
	var done []string
	var problems []error
	now := time.Now()
	names := map[string]bool{}
	for _, reservation := range wanted {
		names[reservation.Name] = true
		steps, err := k.plan(reservation, have, now)
		if err == nil {
			var did []string
			did, err = k.run(ctx, steps)
			done = append(done, did...)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("reservation %s: %w", reservation.Name, err))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if !have[name].ours || names[name] {
			continue
		}
		did, err := k.run(ctx, [][]string{deletion(name)})
		done = append(done, did...)
		if err != nil {
			problems = append(problems, fmt.Errorf("reservation %s is not in the site any more: %w", name, err))
		}
	}
	return done, errors.Join(problems...)
}

// ByHand returns the nodes of the reservations that people made, by name.
func (k *Keeper) ByHand(ctx context.Context) (map[string][]string, error) {
	have, err := k.read(ctx)
	if err != nil {
		return nil, err
	}
	nodes := map[string][]string{}
	for name, reservation := range have {
		if !reservation.ours {
			nodes[name] = reservation.nodes
		}
	}
	return nodes, nil
}

func (k *Keeper) run(ctx context.Context, steps [][]string) (done []string, err error) {
	for _, step := range steps {
		if _, err := k.Programs.Run(ctx, callTimeout, "scontrol", step...); err != nil {
			return done, err
		}
		done = append(done, strings.Join(step, " "))
	}
	return done, nil
}

func deletion(name string) []string { return []string{"delete", "ReservationName=" + name} }

// plan returns the scontrol commands that bring one reservation to what is wanted.
func (k *Keeper) plan(r v1alpha1.Reservation, have map[string]existing, now time.Time) ([][]string, error) {
	is, exists := have[r.Name]
	if exists && !is.ours {
		return nil, errors.New("slurmctld has one of this name that somebody made by hand; delete it, or choose another name")
	}
	occurrence, comes, err := due(r, k.Zone, now)
	if err != nil || !exists && !comes {
		return nil, err
	}
	create := k.creation(r, occurrence)
	if !exists {
		return [][]string{create}, nil
	}
	sameTime, err := agrees(r, k.Zone, is.window, now)
	if err != nil {
		return nil, err
	}
	sameNodes, err := is.on(r.Nodes)
	if err != nil {
		return nil, err
	}
	if !equal(owned(is.flags), r.Flags) {
		// Flags can be added to a reservation, but a recurrence can't be taken off or changed.
		if !comes {
			return [][]string{deletion(r.Name)}, nil
		}
		return [][]string{deletion(r.Name), create}, nil
	}
	var set []string
	switch {
	case sameTime:
	case !comes: // its end was moved into the past
		return [][]string{deletion(r.Name)}, nil
	case is.window.start.After(now):
		set = append(set, "StartTime="+moment(occurrence.start), "EndTime="+moment(occurrence.end))
	default: // it has begun, and a start in the past cannot be moved
		set = append(set, "EndTime="+moment(occurrence.end))
	}
	if !sameNodes {
		set = append(set, "Nodes="+nodes(r))
	}
	if !equal(is.users, users(r)) {
		set = append(set, "Users="+strings.Join(users(r), ","))
	}
	if !equal(is.accounts, r.Accounts) {
		set = append(set, "Accounts="+strings.Join(r.Accounts, ","))
	}
	if len(set) == 0 {
		return nil, nil
	}
	return [][]string{append([]string{"update", "ReservationName=" + r.Name}, set...)}, nil
}

func (k *Keeper) creation(r v1alpha1.Reservation, occurrence window) []string {
	command := []string{
		"create", "reservation", "ReservationName=" + r.Name, "Comment=" + mark, "Nodes=" + nodes(r),
		"StartTime=" + moment(occurrence.start), "EndTime=" + moment(occurrence.end),
	}
	for _, list := range []struct {
		key    string
		values []string
	}{{"Users", users(r)}, {"Accounts", r.Accounts}, {"Flags", r.Flags}} {
		if len(list.values) > 0 {
			command = append(command, list.key+"="+strings.Join(list.values, ","))
		}
	}
	return command
}

// users are those who may run in a reservation. slurmctld makes none that is for nobody, so a maintenance is root's.
func users(r v1alpha1.Reservation) []string {
	if len(r.Users) == 0 && len(r.Accounts) == 0 {
		return []string{"root"}
	}
	return r.Users
}

func nodes(r v1alpha1.Reservation) string {
	if r.Nodes == "" {
		return "ALL"
	}
	return r.Nodes
}

func moment(t time.Time) string { return t.UTC().Format(layout) }

// on tells whether the reservation is on exactly these nodes.
func (e existing) on(list string) (bool, error) {
	if list == "" || e.all {
		return list == "" && e.all, nil
	}
	want, err := hostlist.Expand(list)
	if err != nil {
		return false, err
	}
	return equal(e.nodes, want), nil
}

// equal compares two sets.
func equal(a, b []string) bool {
	sorted := func(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }
	return slices.Equal(sorted(a), sorted(b))
}

// owned are the flags that somebody asked for, without those that slurmctld sets by itself.
func owned(flags []string) []string {
	var asked []string
	for _, flag := range flags {
		flag, _, _ = strings.Cut(flag, "=") // PURGE_COMP=00:05:00
		switch flag {
		case "SPEC_NODES", "ALL_NODES":
		case "NO_HOLD_JOBS_AFTER_END": // scontrol shows it longer than it takes it
			asked = append(asked, "NO_HOLD_JOBS_AFTER")
		default:
			asked = append(asked, flag)
		}
	}
	return asked
}

// read asks slurmctld for all reservations, by name.
func (k *Keeper) read(ctx context.Context) (map[string]existing, error) {
	out, err := k.Programs.Run(ctx, callTimeout, "scontrol", "show", "reservation", "--oneliner")
	if err != nil {
		return nil, err
	}
	return parse(out)
}

func parse(out string) (map[string]existing, error) {
	have := map[string]existing{}
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "ReservationName=") {
			continue // "No reservations in the system"
		}
		fields := map[string]string{}
		for _, field := range strings.Fields(line) {
			key, value, _ := strings.Cut(field, "=")
			if value == "(null)" {
				value = ""
			}
			fields[key] = value
		}
		var e existing
		for _, at := range []struct {
			key  string
			into *time.Time
		}{{"StartTime", &e.window.start}, {"EndTime", &e.window.end}} {
			t, err := time.ParseInLocation(layout, fields[at.key], time.UTC)
			if err != nil {
				return nil, fmt.Errorf("scontrol show reservation: %s %q is no moment", at.key, fields[at.key])
			}
			*at.into = t
		}
		names, err := hostlist.Expand(fields["Nodes"])
		if err != nil {
			return nil, fmt.Errorf("scontrol show reservation: %w", err)
		}
		e.nodes, e.users, e.accounts, e.flags = names, list(fields["Users"]), list(fields["Accounts"]), list(fields["Flags"])
		e.all, e.ours = slices.Contains(e.flags, "ALL_NODES"), fields["Comment"] == mark
		have[fields["ReservationName"]] = e
	}
	return have, nil
}

func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}
