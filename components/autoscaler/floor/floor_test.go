package floor_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
	"github.com/berth-hpc/berth/components/autoscaler/floor"
	"github.com/berth-hpc/berth/components/slurmrest"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	moment, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return moment
}

// "Weekdays 8 to 20 keep 2", in the lab's own time zone, summer and winter.
func TestSchedule(t *testing.T) {
	weekdays := []string{"Mon", "Tue", "Wed", "Thu", "Fri"}
	spec := &v1alpha1.WorkerPoolSpec{
		Min: 0, Max: 4, TimeZone: "Europe/Berlin",
		Schedule: []v1alpha1.KeepWindow{
			{Days: weekdays, From: "08:00", To: "20:00", Keep: 2},
			{Days: []string{"Fri"}, From: "22:00", To: "02:00", Keep: 3}, // over midnight, into Saturday
			{Days: []string{"Sun"}, From: "23:00", To: "24:00", Keep: 9}, // more than there are
		},
	}
	for _, test := range []struct {
		at   string
		want int
	}{
		{"2026-12-02T06:59:00Z", 0}, // Wednesday, 7:59 in winter
		{"2026-12-02T07:00:00Z", 2},
		{"2026-12-02T18:59:59Z", 2},
		{"2026-12-02T19:00:00Z", 0},
		{"2026-07-01T06:00:00Z", 2}, // Wednesday, 8:00 in summer
		{"2026-07-01T18:00:00Z", 0},
		{"2026-12-05T12:00:00Z", 0}, // Saturday
		{"2026-12-04T21:30:00Z", 3}, // Friday night
		{"2026-12-05T00:59:00Z", 3}, // and still, on Saturday
		{"2026-12-05T01:00:00Z", 0},
		{"2026-12-06T22:30:00Z", 4}, // Sunday, at most max
	} {
		got, because, err := floor.Want(spec, floor.Load{}, at(t, test.at))
		if err != nil || got != test.want {
			t.Errorf("%s: %d (%s), %v, want %d", test.at, got, because, err, test.want)
		}
	}
	for _, bad := range []v1alpha1.WorkerPoolSpec{
		{Max: 1, TimeZone: "Middle/Earth"},
		{Max: 1, Schedule: []v1alpha1.KeepWindow{{Days: weekdays, From: "25:00", To: "26:00"}}},
		{Max: 1, Schedule: []v1alpha1.KeepWindow{{Days: weekdays, From: "8", To: "9"}}},
	} {
		if _, _, err := floor.Want(&bad, floor.Load{}, time.Now()); err == nil {
			t.Errorf("accepted %+v", bad)
		}
	}
}

// Headroom is busy + free.
func TestHeadroom(t *testing.T) {
	for _, test := range []struct {
		name     string
		min      int32
		headroom v1alpha1.Headroom
		load     floor.Load
		want     int
	}{
		{"none", 1, v1alpha1.Headroom{}, floor.Load{Busy: 3}, 1},
		{"one free node, nothing runs", 0, v1alpha1.Headroom{Nodes: 1}, floor.Load{}, 1},
		{"one free node beside two busy", 0, v1alpha1.Headroom{Nodes: 1}, floor.Load{Busy: 2}, 3},
		{"min is more", 4, v1alpha1.Headroom{Nodes: 1}, floor.Load{Busy: 2}, 4},
		{"two free shares, nothing runs", 0, v1alpha1.Headroom{Shares: 2}, floor.Load{NodeShares: 4}, 1},
		{"two free shares, a card has them", 0, v1alpha1.Headroom{Shares: 2}, floor.Load{Busy: 1, FreeShares: 2, NodeShares: 4}, 1},
		{"two free shares, a card has one", 0, v1alpha1.Headroom{Shares: 2}, floor.Load{Busy: 1, FreeShares: 1, NodeShares: 4}, 2},
		{"six free shares need two more cards", 0, v1alpha1.Headroom{Shares: 6}, floor.Load{Busy: 1, FreeShares: 0, NodeShares: 4}, 3},
		{"never more than max", 0, v1alpha1.Headroom{Nodes: 9}, floor.Load{Busy: 2}, 5},
	} {
		spec := &v1alpha1.WorkerPoolSpec{Min: test.min, Max: 5, Headroom: &test.headroom}
		got, because, err := floor.Want(spec, test.load, time.Now())
		if err != nil || got != test.want {
			t.Errorf("%s: %d (%s), %v, want %d", test.name, got, because, err, test.want)
		}
	}
}

func TestShares(t *testing.T) {
	for _, test := range []struct {
		used      string
		all, want int
	}{
		{"gpu:a:0(IDX:N/A),mps:a:0(0/100)", 4, 0},
		{"gpu:a:0(IDX:N/A),mps:a:25(25/100)", 4, 1},
		{"gpu:a:0(IDX:N/A),mps:a:30(30/100)", 4, 2}, // a job that asked for an odd part
		{"gpu:a:1(IDX:0),mps:a:0(0/100)", 4, 4},     // a whole card
	} {
		node := &slurmrest.Node{Name: "g", Gres: "gpu:a:1,mps:a:100", GresUsed: test.used}
		all, used, err := floor.Shares(node, 25)
		if err != nil || all != test.all || used != test.want {
			t.Errorf("%s: %d of %d, %v, want %d of %d", test.used, used, all, err, test.want, test.all)
		}
	}
	if all, used, err := floor.Shares(&slurmrest.Node{Name: "c"}, 25); err != nil || all != 0 || used != 0 {
		t.Error("a node without a card has shares:", all, used, err)
	}
	if _, _, err := floor.Shares(&slurmrest.Node{Gres: "gpu:a:b"}, 25); err == nil {
		t.Error("nonsense has shares")
	}
}

// Whatever the load does, the floor is never below what is wanted, falls only after its while, and in the end does.
func TestDampedFloorNeverFlaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		while := time.Duration(rapid.IntRange(0, 300).Draw(t, "while")) * time.Second
		now := time.Unix(1_800_000_000, 0)
		var floored *v1alpha1.Floor
		lastNeeded := now // when the number that holds was last wanted
		for range rapid.IntRange(1, 60).Draw(t, "rounds") {
			now = now.Add(time.Duration(rapid.IntRange(1, 60).Draw(t, "seconds")) * time.Second)
			wanted := rapid.IntRange(0, 4).Draw(t, "wanted")
			next := floor.Damp(floored, wanted, "test", now, while)
			if int(next.Nodes) < wanted {
				t.Fatalf("%d where %d are wanted", next.Nodes, wanted)
			}
			if floored != nil && next.Nodes < floored.Nodes && now.Sub(lastNeeded) < while {
				t.Fatalf("fell from %d to %d after %s, not %s", floored.Nodes, next.Nodes, now.Sub(lastNeeded), while)
			}
			if floored == nil || wanted >= int(floored.Nodes) || next.Nodes != floored.Nodes {
				lastNeeded = now
			}
			floored = &next
		}
		now = now.Add(time.Second)
		floored = ptr(floor.Damp(floored, 0, "", now, while))
		if last := floor.Damp(floored, 0, "", now.Add(while), while); last.Nodes != 0 {
			t.Fatalf("never falls: %+v", last)
		}
	})
	// A clock that was set back must not hold the floor up for ever.
	future := metav1.NewTime(time.Unix(2_000_000_000, 0))
	now := time.Unix(1_800_000_000, 0)
	first := floor.Damp(&v1alpha1.Floor{Nodes: 2, LessSince: &future}, 0, "", now, time.Minute)
	if last := floor.Damp(&first, 0, "", now.Add(time.Minute), time.Minute); last.Nodes != 0 {
		t.Errorf("held up by a clock that was set back: %+v", last)
	}
}

func ptr[T any](v T) *T { return &v }
