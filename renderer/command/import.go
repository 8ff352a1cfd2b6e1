package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	schema "github.com/berth-hpc/berth/cue"
	"github.com/berth-hpc/berth/renderer/foreign"
	"github.com/berth-hpc/berth/renderer/load"
)

// importReport is what import says.
type importReport struct {
	Site    string         `json:"site"`
	File    string         `json:"file"`
	Left    []foreign.Note `json:"left"`    // not carried over
	Assumed []foreign.Note `json:"assumed"` // fields that the source does not say
}

type importFlags struct {
	from, site, url string
	dryRun          bool
}

func newImport(s *settings) *cobra.Command {
	var flags importFlags
	c := &cobra.Command{
		Use:   "import FILE [GRES_CONF]",
		Short: "Draft a site from another tool's description of a cluster",
		Long: `Import reads one of

  slurm    a slurm.conf, and the gres.conf beside it if it is named too
  slinky   values of Slinky's slurm chart
  values   flat Helm values as charts named slurm-platform have them (gpu, monitoring, storage.nfsServer, pools)

and writes clusters/SITE.cue, a site that vet accepts. It says what it could not carry over, with the line and the reason, and which
fields the source does not have: those hold something that nobody's cluster has and must be looked at, and are named at the head
of the file too. Without --from it goes by the file: *.conf is slurm, values with nodesets are slinky, others values.

` + exitCodesHelp,
		Example: `  berth import --dry-run --site old ../slurm.conf ../gres.conf
  berth import --site mylab ../values-k3s.yaml`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(_ *cobra.Command, files []string) error { return s.importSite(files, flags) },
	}
	c.Flags().StringVar(&flags.from, "from", "", "what the file is: slurm, slinky or values (default: by its name and content)")
	c.Flags().StringVar(&flags.site, "site", "imported", "name of the site to write")
	c.Flags().StringVar(&flags.url, "url", "", "URL of the repository as Flux will reach it")
	c.Flags().BoolVar(&flags.dryRun, "dry-run", false, "print the site instead of writing it")
	_ = c.RegisterFlagCompletionFunc("from", cobra.FixedCompletions([]string{"slurm", "slinky", "values"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

var importedName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

func (s *settings) importSite(files []string, flags importFlags) error {
	if !importedName.MatchString(flags.site) {
		return fmt.Errorf("--site %q: cannot be a site's name; use at most 63 of a-z, 0-9 and -", flags.site)
	}
	root, err := s.root()
	if err != nil {
		return err
	}
	target := filepath.Join(root, "clusters", flags.site+".cue")
	if _, err := os.Lstat(target); err == nil && !flags.dryRun {
		return fmt.Errorf("%s: exists; choose another name with --site, or remove it", s.shown(target))
	}
	draft, err := s.draft(files, flags)
	if err != nil {
		return err
	}
	text, err := draft.CUE(flags.site, strings.Join(baseNames(files), " and "))
	if err != nil {
		return fmt.Errorf("%s: the draft is not CUE: %w", files[0], err)
	}
	if err := vetDraft(flags.site, text); err != nil {
		return fmt.Errorf("%s: the site that follows from it is not right, and nothing was written:\n%w", files[0], err)
	}
	report := importReport{Site: flags.site, File: s.shown(target), Left: append([]foreign.Note{}, draft.Left...), Assumed: append([]foreign.Note{}, draft.Assumed...)}
	if flags.dryRun {
		report.File = ""
		if s.output == "table" {
			_, err = s.env.Out.Write(text)
		}
	} else {
		err = renameio.WriteFile(target, text, 0o644)
	}
	if err != nil {
		return err
	}
	return s.print(report, func(w io.Writer) error {
		if flags.dryRun {
			w = s.env.Err
		} else {
			fmt.Fprintln(w, report.File)
		}
		notes(w, "Not carried over:", report.Left)
		notes(w, "To be looked at, because the source does not say:", report.Assumed)
		return nil
	})
}

func notes(w io.Writer, title string, list []foreign.Note) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintln(w, title)
	for _, n := range list {
		fmt.Fprintln(w, "  "+n.String())
	}
}

func baseNames(files []string) []string {
	var names []string
	for _, f := range files {
		names = append(names, filepath.Base(f))
	}
	return names
}

func (s *settings) draft(files []string, flags importFlags) (*foreign.Draft, error) {
	from, first := flags.from, s.absolute(files[0])
	if from == "" {
		from = "values"
		if text, err := os.ReadFile(first); err != nil {
			return nil, err
		} else if strings.HasSuffix(first, ".conf") {
			from = "slurm"
		} else if regexp.MustCompile(`(?m)^nodesets:`).Match(text) {
			from = "slinky"
		}
	}
	if len(files) == 2 && from != "slurm" {
		return nil, fmt.Errorf("%s: a second file is read with a slurm.conf only", files[1])
	}
	switch from {
	case "slurm":
		cards := ""
		if len(files) == 2 {
			cards = s.absolute(files[1])
		}
		return foreign.Slurm(first, cards, flags.site, flags.url)
	case "slinky":
		return foreign.Slinky(first, flags.site, flags.url)
	case "values":
		return foreign.Flat(first, flags.site, flags.url)
	}
	return nil, fmt.Errorf("--from %q: unknown; use slurm, slinky or values", from)
}

// vetDraft evaluates the draft in a repository of its own: what is written is a right site.
func vetDraft(site string, text []byte) error {
	root, err := os.MkdirTemp("", "berth-import-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	if err := schema.Vendor(root); err != nil {
		return err
	}
	folder := filepath.Join(root, "clusters")
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, site+".cue"), text, 0o644); err != nil {
		return err
	}
	_, err = load.Load(folder)
	var found load.Problems
	if errors.As(err, &found) {
		for i := range found {
			found[i].File = filepath.Base(found[i].File) // the folder is gone when somebody reads this
		}
		return found
	}
	return err
}
