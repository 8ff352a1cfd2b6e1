package command

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-hpc/berth/renderer/site"
)

func berlin() *site.Site {
	s := &site.Site{Name: "lab"}
	s.Cluster.TimeZone = "Europe/Berlin"
	return s
}

// A period is in the site's time zone and ends now at the latest.
func TestUsagePeriod(t *testing.T) {
	now := time.Date(2026, 12, 2, 14, 30, 0, 0, time.UTC)
	for _, c := range []struct {
		flags      usageFlags
		start, end string
	}{
		{usageFlags{}, "2026-12-01T00:00:00+01:00", "2026-12-02T15:30:00+01:00"},
		{usageFlags{month: "2026-10"}, "2026-10-01T00:00:00+02:00", "2026-11-01T00:00:00+01:00"},
		{usageFlags{month: "2026-12"}, "2026-12-01T00:00:00+01:00", "2026-12-02T15:30:00+01:00"},
		{usageFlags{start: "12h"}, "2026-12-02T03:30:00+01:00", "2026-12-02T15:30:00+01:00"},
		{usageFlags{start: "30d", end: "1w"}, "2026-11-02T15:30:00+01:00", "2026-11-25T15:30:00+01:00"},
		{usageFlags{start: "2026-11-01T08:00", end: "2026-11-01T08:00:30"}, "2026-11-01T08:00:00+01:00", "2026-11-01T08:00:30+01:00"},
	} {
		c.flags.by = "user"
		q, err := c.flags.query(berlin(), now)
		if err != nil {
			t.Errorf("%+v: %v", c.flags, err)
			continue
		}
		if start, end := q.Start.Format(time.RFC3339), q.End.Format(time.RFC3339); start != c.start || end != c.end {
			t.Errorf("%+v: %s to %s, want %s to %s", c.flags, start, end, c.start, c.end)
		}
	}
}

func TestUsageMistakes(t *testing.T) {
	now := time.Date(2026, 12, 2, 14, 30, 0, 0, time.UTC)
	for want, flags := range map[string]usageFlags{
		`--start "yesterday": not a time; write 2026-12-02, 2026-12-02T15:30, or how long ago: 12h, 30d`: {start: "yesterday"},
		`--end "90": not a time`:                                                          {end: "90"}, // minutes to one part of Slurm, seconds to another
		`--month "november": not a month; write for example 2026-12`:                      {month: "november"},
		`the period from 2026-11-02T00:00:00+01:00 to 2026-11-01T00:00:00+01:00 is empty`: {start: "2026-11-02", end: "2026-11-01"},
		`the period from 2027-01-01T00:00:00+01:00 to 2026-12-02T15:30:00+01:00 is empty`: {month: "2027-01"},
		`--by "pool": use user or account`:                                                {by: "pool"},
		`--user "--all": not a name`:                                                      {users: []string{"--all"}},
		`--account "": not a name`:                                                        {accounts: []string{""}},
	} {
		if flags.by == "" {
			flags.by = "user"
		}
		if _, err := flags.query(berlin(), now); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", flags, err, want)
		}
	}
	unknown := berlin()
	unknown.Cluster.TimeZone = "Mars/Olympus"
	if _, err := (&usageFlags{by: "user"}).query(unknown, now); err == nil || !strings.Contains(err.Error(), "cluster.timeZone of lab") {
		t.Error(err)
	}
}
