package reservation

import (
	"testing"
	"time"

	"github.com/berth-hpc/berth/components/api/v1alpha1"
)

func TestDue(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip("no time zone data: ", err)
	}
	for _, test := range []struct {
		name, start string
		flags       []string
		now         string
		want        string // the start, "" where it is over; always for two hours
		wantHours   float64
	}{
		{"to come", "2027-04-12T10:00:00", nil, "2027-04-01T00:00:00", "2027-04-12T10:00:00", 2},
		{"going on", "2027-04-12T10:00:00", nil, "2027-04-12T10:30:00", "2027-04-12T10:30:00", 1.5},
		{"over", "2027-04-12T10:00:00", nil, "2027-04-12T12:00:00", "", 0},
		{"weekly, years later", "2027-04-12T10:00:00", []string{"WEEKLY"}, "2029-01-01T11:00:00", "2029-01-08T10:00:00", 2},
		{"weekly, just begun", "2027-04-12T10:00:00", []string{"WEEKLY"}, "2027-04-19T10:05:00", "2027-04-19T10:00:00", 2},
		{"daily over the change of clocks", "2027-03-27T10:00:00", []string{"DAILY"}, "2027-03-27T13:00:00", "2027-03-28T10:00:00", 2},
		{"weekdays from Friday on", "2027-04-09T10:00:00", []string{"WEEKDAY"}, "2027-04-09T13:00:00", "2027-04-12T10:00:00", 2},
		{"weekends from Sunday on", "2027-04-11T10:00:00", []string{"WEEKEND"}, "2027-04-11T13:00:00", "2027-04-17T10:00:00", 2},
		{"hourly", "2027-04-12T10:00:00", []string{"HOURLY"}, "2027-04-12T10:30:00", "2027-04-12T11:00:00", 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			now, err := time.ParseInLocation(layout, test.now, berlin)
			if err != nil {
				t.Fatal(err)
			}
			got, comes, err := due(v1alpha1.Reservation{Start: test.start, Duration: 7200, Flags: test.flags}, berlin, now)
			if err != nil {
				t.Fatal(err)
			}
			start := ""
			if comes {
				start = got.start.Format(layout)
			}
			if start != test.want || comes && got.end.Sub(got.start).Hours() != test.wantHours {
				t.Errorf("due from %s to %s, want %q for %g hours", start, got.end, test.want, test.wantHours)
			}
		})
	}
	if _, _, err := due(v1alpha1.Reservation{Start: "tomorrow"}, berlin, time.Now()); err == nil {
		t.Error("a start that is none was taken")
	}
}

func TestParse(t *testing.T) {
	have, err := parse(`ReservationName=class StartTime=2026-12-02T05:55:33 EndTime=2026-12-02T07:55:33 Duration=02:00:00 Nodes=w-[0-1] NodeCnt=2 CoreCnt=4 Features=(null) PartitionName=(null) Flags=WEEKLY,SPEC_NODES TRES=cpu=4 Users=root,daemon Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null) MaxStartDelay=(null) Comment=berth
ReservationName=byhand StartTime=2027-03-12T04:55:33 EndTime=2027-03-12T05:55:33 Duration=01:00:00 Nodes=w-0 NodeCnt=1 CoreCnt=2 Features=(null) PartitionName=(null) Flags=SPEC_NODES,ALL_NODES TRES=cpu=2 Users=root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null) MaxStartDelay=(null)
`)
	if err != nil {
		t.Fatal(err)
	}
	class, byHand := have["class"], have["byhand"]
	if !class.ours || byHand.ours || class.all || !byHand.all {
		t.Errorf("class: ours %t, all %t; byhand: ours %t, all %t", class.ours, class.all, byHand.ours, byHand.all)
	}
	if !equal(class.nodes, []string{"w-1", "w-0"}) || !equal(class.users, []string{"daemon", "root"}) || len(class.accounts) != 0 || !equal(owned(class.flags), []string{"WEEKLY"}) {
		t.Errorf("class is %+v", class)
	}
	if got := class.window.start.Format(layout); got != "2026-12-02T05:55:33" {
		t.Errorf("class begins at %s", got)
	}
	if none, err := parse("No reservations in the system\n"); err != nil || len(none) != 0 {
		t.Errorf("no reservations: %v %v", none, err)
	}
	if _, err := parse("ReservationName=x StartTime=Unknown"); err == nil {
		t.Error("a reservation without a start was taken")
	}
}
