package command

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"time"
	_ "time/tzdata" // sites name time zones, and not every machine has them

	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/components/guard/slurm"
	"github.com/berth-hpc/berth/renderer/compile/slurmconf"
	"github.com/berth-hpc/berth/renderer/site"
	"github.com/berth-hpc/berth/renderer/usage"
)

// usageFlags say which jobs count, and how they are shown.
type usageFlags struct {
	cluster           clusterFlags
	start, end, month string
	accounts, users   []string
	by                string
}

// barWidth is how long the longest bar is, so that a line with its names fits a terminal.
const barWidth = 40

func newUsage(s *settings) *cobra.Command {
	var f usageFlags
	c := &cobra.Command{
		Use:   "usage [SITE]",
		Short: "Say what accounts and users had of the cluster: GPU-hours and CPU-hours",
		Long: `Usage adds up what jobs had in a period, by account and user, from Slurm's accounting: the whole time that CPUs and cards were theirs,
busy or not. A share of a card (gres/mps, gres/shard) counts as that part of one. Of a job that began before the period or ends after
it, the part within counts; jobs that run now count up to now. It changes nothing.

It asks sacct in the controller's pod, through kubectl.

The period is from the first of this month to now. --start and --end take 2026-11-01, 2026-11-01T08:00 (in the site's time zone) or
how long before now: 12h, 30d.

` + exitCodesHelp,
		Example: `  berth usage lab
  berth usage lab --start 30d --by account
  berth usage lab --month 2026-11 --output csv > november.csv
  berth usage lab --account vision --start 2026-11-01 --end 2026-11-15T12:00 --output chart
  berth usage lab --month 2026-11 --by account --output svg > november.svg`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: s.completeSites,
		Annotations:       map[string]string{moreFormats: "csv chart svg"},
		RunE: func(c *cobra.Command, names []string) error {
			one, err := s.oneSite(names)
			if err != nil {
				return err
			}
			query, err := f.query(one, time.Now())
			if err != nil {
				return err
			}
			if err := f.cluster.named(); err != nil {
				return err
			}
			programs := slurm.Programs{Prefix: f.cluster.inController(one.Namespaces.Slurm, "slurmctld")}
			report, err := usage.Read(c.Context(), one, query, func(ctx context.Context, argv ...string) (string, error) {
				return programs.Run(ctx, f.cluster.timeout, argv[0], argv[1:]...)
			})
			if err != nil {
				return fmt.Errorf("ask Slurm's accounting: %w", err)
			}
			return s.printUsage(report)
		},
	}
	c.Flags().StringVar(&f.start, "start", "", "from when (default: the first of this month)")
	c.Flags().StringVar(&f.end, "end", "", "to when (default: now)")
	c.Flags().StringVar(&f.month, "month", "", "a whole month, such as 2026-11, instead of --start and --end")
	c.Flags().StringSliceVar(&f.accounts, "account", nil, "only these accounts")
	c.Flags().StringSliceVar(&f.users, "user", nil, "only these users")
	c.Flags().StringVar(&f.by, "by", "user", "what has a line: user (in each account), or account")
	_ = c.RegisterFlagCompletionFunc("by", cobra.FixedCompletions([]string{"user", "account"}, cobra.ShellCompDirectiveNoFileComp))
	c.MarkFlagsMutuallyExclusive("month", "start")
	c.MarkFlagsMutuallyExclusive("month", "end")
	f.cluster.add(c, s)
	// A year of a busy cluster is a million jobs.
	f.cluster.timeout = 2 * time.Minute
	c.Flags().Lookup("timeout").DefValue = f.cluster.timeout.String()
	return c
}

// query is the period and the names that the flags say.
func (f *usageFlags) query(s *site.Site, now time.Time) (usage.Query, error) {
	q := usage.Query{Accounts: f.accounts, Users: f.users, ByAccount: f.by == "account"}
	if f.by != "user" && f.by != "account" {
		return q, fmt.Errorf("--by %q: use user or account", f.by)
	}
	for flag, names := range map[string][]string{"--account": f.accounts, "--user": f.users} {
		for _, name := range names {
			if !accountingName.MatchString(name) {
				return q, fmt.Errorf("%s %q: not a name; several have commas between them", flag, name)
			}
		}
	}
	zone, err := time.LoadLocation(s.Cluster.TimeZone)
	if err != nil {
		return q, fmt.Errorf("cluster.timeZone of %s: %w", s.Name, err)
	}
	now = now.In(zone)
	q.Start, q.End = time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, zone), now
	if f.month != "" {
		if q.Start, err = time.ParseInLocation("2006-01", f.month, zone); err != nil {
			return q, fmt.Errorf("--month %q: not a month; write for example %s", f.month, now.Format("2006-01"))
		}
		q.End = q.Start.AddDate(0, 1, 0)
	}
	for _, flag := range []struct {
		name, text string
		to         *time.Time
	}{{"--start", f.start, &q.Start}, {"--end", f.end, &q.End}} {
		if flag.text == "" {
			continue
		}
		if *flag.to, err = parseMoment(flag.text, now); err != nil {
			return q, fmt.Errorf("%s %q: %w", flag.name, flag.text, err)
		}
	}
	if q.End.After(now) {
		q.End = now // a job's time is not over before it is
	}
	if !q.Start.Before(q.End) {
		return q, fmt.Errorf("the period from %s to %s is empty", q.Start.Format(time.RFC3339), q.End.Format(time.RFC3339))
	}
	return q, nil
}

var (
	accountingName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.@-]*$`)
	longAgo        = regexp.MustCompile(`^[0-9.]+[a-z]`)
)

// parseMoment reads a time in now's zone, or how long before now.
func parseMoment(text string, now time.Time) (time.Time, error) {
	for _, layout := range []string{"2006-01-02", "2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if moment, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return moment, nil
		}
	}
	if longAgo.MatchString(text) {
		if ago, err := slurmconf.ParseTime(text); err == nil {
			return now.Add(-ago.Duration()), nil
		}
	}
	return time.Time{}, fmt.Errorf("not a time; write %s, %s, or how long ago: 12h, 30d", now.Format("2006-01-02"), now.Format("2006-01-02T15:04"))
}

func (s *settings) printUsage(r *usage.Report) error {
	if r.Uncounted > 0 {
		fmt.Fprintf(s.env.Err, "berth: %d %s shards of pools that the site does not divide so: their part of a card is not counted\n", r.Uncounted, plural(r.Uncounted, "job had", "jobs had"))
	}
	switch s.output {
	case "csv":
		return r.CSV(s.env.Out)
	case "chart":
		return r.Chart(s.env.Out, barWidth)
	case "svg":
		return r.SVG(s.env.Out)
	}
	return s.print(r, func(w io.Writer) error {
		rows := [][]string{{"ACCOUNT", "USER", "JOBS", "CPU-HOURS", "GPU-HOURS"}}
		if len(r.Rows) > 0 && r.Rows[0].User == "" {
			rows[0][1] = ""
		}
		for _, row := range r.Rows {
			rows = append(rows, []string{row.Account, row.User, fmt.Sprint(row.Jobs), usage.Hours(row.CPUHours), usage.Hours(row.GPUHours)})
		}
		rows = append(rows, []string{"total", "", fmt.Sprint(r.Total.Jobs), usage.Hours(r.Total.CPUHours), usage.Hours(r.Total.GPUHours)})
		fmt.Fprintf(w, "%s, %s to %s\n\n", r.Site, r.Start.Format("2006-01-02 15:04 MST"), r.End.Format("2006-01-02 15:04 MST"))
		return table(w, rows)
	})
}
