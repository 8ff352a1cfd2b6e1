package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/renderer/explain"
	"github.com/berth-hpc/berth/renderer/live"
	"github.com/berth-hpc/berth/renderer/load"
)

// traceReport is what trace says.
type traceReport struct {
	// Owners is the way from a live object to the one that is rendered.
	Owners  []string        `json:"owners,omitempty"`
	Lines   []explain.Place `json:"lines"`
	Origins []traceOrigin   `json:"origins"`
}

type traceOrigin struct {
	explain.Origin
	At   *load.Place `json:"at,omitempty"`
	From []fieldAt   `json:"from,omitempty"`
	// Default says that the site's author wrote nothing that it follows from.
	Default bool `json:"default"`
}

func newTrace(s *settings) *cobra.Command {
	var cluster clusterFlags
	var asked bool
	c := &cobra.Command{
		Use:   "trace SITE OBJECT|FILE[:LINE]|TEXT [FIELD]",
		Short: "Find the line of the site that a rendered line comes from",
		Long: `Trace finds the fields of the site, and the patches, that rendered lines come from, each with the line of your file. It takes

  an object, KIND/NAME or KIND/NAMESPACE/NAME, and a field of it such as spec.replicas,
  a file below overlays/ or clusters/, with a line: overlays/lab/slurm/slurmconfig-slurm.yaml:88,
  or a text: a line of slurm.conf, or a part of one such as NodeName=slurm-worker-cpu.

It is explain the other way round: it changes every field in turn and renders again in memory, which takes some seconds; nothing is
written. With --live it also takes an object that a controller made, such as a worker's pod, and follows its owners in the cluster
to the one that is rendered.

` + exitCodesHelp,
		Example: `  berth trace laptop deployment/slurm-workers/slurm-login spec.replicas
  berth trace laptop pod/slurm-workers/slurm-worker-cpu-0 spec.containers[0].image --live`,
		Args:              cobra.RangeArgs(2, 3),
		ValidArgsFunction: s.completeSites,
		RunE: func(c *cobra.Command, args []string) error {
			root, opened, err := s.open(args[:1])
			if err != nil {
				return err
			}
			query := s.query(root, args[1])
			if len(args) > 2 {
				query.Field = args[2]
			}
			explainer, err := explain.New(opened, args[0], root, parts())
			if err != nil {
				return err
			}
			report := traceReport{Lines: []explain.Place{}, Origins: []traceOrigin{}}
			if asked {
				if report.Owners, err = cluster.follow(c.Context(), explainer, &query); err != nil {
					return err
				}
			}
			lines, origins, err := explainer.Trace(query)
			if err != nil {
				return traceError(query, asked, err)
			}
			report.Lines = append(report.Lines, lines...)
			for _, origin := range origins {
				o := traceOrigin{Origin: origin, From: fieldsAt(opened, args[0], origin.Sources)}
				if at, whole := opened.Of(append(args[:1:1], origin.Path...)); whole && origin.Patch == "" {
					o.At = &at
				}
				o.Default = o.At == nil && len(o.From) == 0 && origin.Patch == ""
				report.Origins = append(report.Origins, o)
			}
			return s.print(report, func(w io.Writer) error { return s.traceTable(w, report) })
		},
	}
	c.Flags().BoolVar(&asked, "live", false, "follow the owners of a live object in the cluster to one that is rendered")
	cluster.add(c, s)
	return c
}

func traceError(query explain.Query, asked bool, err error) error {
	if query.Kind != "" && !asked {
		return fmt.Errorf("%w; berth inflate shows what is, and --live follows the owners of what a controller made", err)
	}
	return fmt.Errorf("%w; berth inflate shows what is", err)
}

var (
	objectForm = regexp.MustCompile(`^([A-Za-z][A-Za-z.]*)/(?:([a-z0-9][a-z0-9.-]*)/)?([a-z0-9][a-z0-9.-]*)$`)
	fileForm   = regexp.MustCompile(`^(.*\.yaml)(?::([0-9]+))?$`)
)

// query reads what is to be traced.
func (s *settings) query(root, what string) explain.Query {
	if m := fileForm.FindStringSubmatch(what); m != nil {
		q := explain.Query{File: strings.TrimPrefix(s.absolute(m[1]), root+"/")}
		if s.repository != "" && !strings.HasPrefix(s.absolute(m[1]), root+"/") {
			q.File = m[1]
		}
		q.FileLine, _ = strconv.Atoi(m[2])
		return q
	}
	if m := objectForm.FindStringSubmatch(what); m != nil {
		return explain.Query{Kind: strings.ToLower(m[1]), Namespace: m[2], Name: m[3]}
	}
	return explain.Query{Text: what}
}

// follow asks the cluster for the owners of a live object until one of them is rendered, and makes the query one about that.
func (f *clusterFlags) follow(ctx context.Context, explainer *explain.Explainer, q *explain.Query) (owners []string, err error) {
	if q.Kind == "" || q.Namespace == "" {
		return nil, fmt.Errorf("--live needs an object as KIND/NAMESPACE/NAME")
	}
	cluster, err := f.client()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	at := live.Object{Kind: q.Kind, Namespace: q.Namespace, Name: q.Name, Field: q.Field}
	for len(explainer.Lines(explain.Query{Kind: at.Kind, Namespace: at.Namespace, Name: at.Name})) == 0 {
		next, err := live.Owner(ctx, cluster, at)
		if err != nil {
			return owners, fmt.Errorf("ask the cluster: %w", err)
		}
		owners = append(owners, fmt.Sprintf("%s belongs to %s", at, next))
		at = next
	}
	q.Kind, q.Namespace, q.Name, q.Field = at.Kind, at.Namespace, at.Name, at.Field
	return owners, nil
}

// shownLines is how many lines a person reads; an object has hundreds.
const shownLines = 20

func (s *settings) traceTable(w io.Writer, r traceReport) error {
	for _, owner := range r.Owners {
		fmt.Fprintln(w, owner)
	}
	for i, line := range r.Lines {
		if i == shownLines {
			fmt.Fprintf(w, "and %d more lines\n", len(r.Lines)-i)
			break
		}
		fmt.Fprintln(w, line)
	}
	for _, o := range r.Origins {
		value, err := json.Marshal(o.Value)
		if err != nil {
			return err
		}
		from := "  from"
		if o.Whole {
			from = "  the whole object from"
		}
		switch {
		case o.Patch != "":
			fmt.Fprintf(w, "%s the patch %s", from, o.Patch)
		case o.At != nil:
			fmt.Fprintf(w, "%s %s = %s (%s)", from, o.Field, value, o.At)
		case o.Default:
			fmt.Fprintf(w, "%s %s = %s (the schema's)", from, o.Field, value)
		default:
			var sources []string
			for _, f := range o.From {
				sources = append(sources, f.String())
			}
			fmt.Fprintf(w, "%s %s = %s, which follows from %s", from, o.Field, value, strings.Join(sources, ", "))
		}
		if len(r.Lines) > shownLines {
			fmt.Fprintf(w, ": %s", o.Places[0].Field)
			if n := len(o.Places) - 1; n > 0 {
				fmt.Fprintf(w, " and %d more lines", n)
			}
		}
		fmt.Fprintln(w)
	}
	if len(r.Origins) == 0 {
		fmt.Fprintln(w, "  from no field of the site: Berth writes it always")
	}
	return nil
}
