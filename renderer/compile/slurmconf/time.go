package slurmconf

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Time is a span of time as Slurm knows it: a whole number of seconds, or without limit. It is the one place where
// times of a site are read and written for Slurm.
type Time struct {
	seconds   int64
	unlimited bool
}

// Unlimited is the time that never ends.
func Unlimited() Time { return Time{unlimited: true} }

// Seconds makes a Time of n seconds.
func Seconds(n int64) Time { return Time{seconds: n} }

var (
	// slurmClock is Slurm's [[days-]hours:]minutes[:seconds] family after the optional "days-" was cut off.
	slurmClock = regexp.MustCompile(`^\d+(:\d{1,2}){0,2}$`)
	// goLike is Go's duration syntax plus days and weeks, which people write and Go lacks.
	goLike = regexp.MustCompile(`^(\d+(\.\d+)?(w|d|h|m|s|ms))+$`)
	goPart = regexp.MustCompile(`(\d+(?:\.\d+)?)(w|d|h|ms|m|s)`)
)

// maxSeconds keeps a time within what Slurm's 32-bit fields hold as minutes and seconds alike.
const maxSeconds = math.MaxInt32 - 1

// ParseTime reads Slurm's forms (minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes,
// days-hours:minutes:seconds, UNLIMITED, INFINITE) and Go's durations, with days (d) and weeks (w) added. A plain number is
// minutes, as it is for sbatch --time. Parts of a second are rounded up, so that a limit never becomes shorter.
func ParseTime(text string) (Time, error) {
	t := strings.TrimSpace(text)
	switch strings.ToUpper(t) {
	case "UNLIMITED", "INFINITE":
		return Unlimited(), nil
	case "":
		return Time{}, fmt.Errorf("empty time; write Slurm's form (2-12:00:00, 30 for minutes, UNLIMITED) or a duration (36h)")
	}
	var seconds float64
	var err error
	switch {
	case goLike.MatchString(t):
		seconds, err = parseGoLike(t)
	default:
		seconds, err = parseSlurm(t)
	}
	if err != nil {
		return Time{}, fmt.Errorf("%q is not a time: %w; write Slurm's form (2-12:00:00, 30 for minutes, UNLIMITED) or a duration (36h)", text, err)
	}
	if seconds > maxSeconds {
		return Time{}, fmt.Errorf("%q is longer than Slurm can hold; write UNLIMITED", text)
	}
	return Seconds(int64(math.Ceil(seconds))), nil
}

func parseGoLike(t string) (float64, error) {
	unit := map[string]float64{"w": 7 * 86400, "d": 86400, "h": 3600, "m": 60, "s": 1, "ms": 0.001}
	var seconds float64
	for _, part := range goPart.FindAllStringSubmatch(t, -1) {
		n, err := strconv.ParseFloat(part[1], 64)
		if err != nil {
			return 0, err
		}
		seconds += n * unit[part[2]]
	}
	return seconds, nil
}

func parseSlurm(t string) (float64, error) {
	days, clock, hasDays := "0", t, false
	if before, after, found := strings.Cut(t, "-"); found {
		days, clock, hasDays = before, after, true
	}
	d, err := strconv.ParseUint(days, 10, 31)
	if err != nil || !slurmClock.MatchString(clock) {
		return 0, fmt.Errorf("unknown form")
	}
	// What the first field of the clock counts depends on the form: hours after "days-" and with two colons, else minutes.
	fields := strings.Split(clock, ":")
	units := []float64{60, 1}
	if hasDays || len(fields) == 3 {
		units = []float64{3600, 60, 1}
	}
	total := float64(d) * 86400
	for i, field := range fields {
		n, err := strconv.ParseUint(field, 10, 31)
		if err != nil {
			return 0, fmt.Errorf("unknown form")
		}
		total += float64(n) * units[i]
	}
	return total, nil
}

// IsUnlimited says whether the time has no end.
func (t Time) IsUnlimited() bool { return t.unlimited }

// Duration is the time as Go knows it; for an unlimited time the longest duration.
func (t Time) Duration() time.Duration {
	if t.unlimited {
		return math.MaxInt64
	}
	return time.Duration(t.seconds) * time.Second
}

// String writes the form that slurm.conf, sbatch and sacctmgr all read alike: days-hours:minutes:seconds, or UNLIMITED.
func (t Time) String() string {
	if t.unlimited {
		return "UNLIMITED"
	}
	s := t.seconds
	return fmt.Sprintf("%d-%02d:%02d:%02d", s/86400, s/3600%24, s/60%60, s%60)
}

// SecondsText writes the number of seconds, for the keys of slurm.conf that are counted in seconds; INFINITE if without limit.
func (t Time) SecondsText() string {
	if t.unlimited {
		return "INFINITE"
	}
	return strconv.FormatInt(t.seconds, 10)
}

// MinutesText writes whole minutes, rounded up, for the keys that are counted in minutes.
func (t Time) MinutesText() string {
	if t.unlimited {
		return "INFINITE"
	}
	return strconv.FormatInt((t.seconds+59)/60, 10)
}
