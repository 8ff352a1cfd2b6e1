package command

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/berth-hpc/berth/components/api"
	"github.com/berth-hpc/berth/components/chart"
	schema "github.com/berth-hpc/berth/cue"
	"github.com/berth-hpc/berth/renderer/compile"
	"github.com/berth-hpc/berth/renderer/load"
	"github.com/berth-hpc/berth/renderer/site"
)

// settings are the flags that all commands share.
type settings struct {
	env        Environment
	repository string
	output     string
	compact    bool // JSON on one line, for commands that print again and again
}

// moreFormats is the annotation with the output formats that a command has beside those of all, with blanks between.
const moreFormats = "formats"

func outputFormats(c *cobra.Command) []string {
	return append([]string{"table", "json", "yaml"}, strings.Fields(c.Annotations[moreFormats])...)
}

func (s *settings) checkOutput(c *cobra.Command) error {
	formats := outputFormats(c)
	if slices.Contains(formats, s.output) {
		return nil
	}
	last := len(formats) - 1
	return fmt.Errorf("--output %q: unknown format; use %s or %s", s.output, strings.Join(formats[:last], ", "), formats[last])
}

// print writes a value as JSON or YAML, or calls table to write it for people.
func (s *settings) print(value any, table func(w io.Writer) error) error {
	switch s.output {
	case "json":
		encoder := json.NewEncoder(s.env.Out)
		if !s.compact {
			encoder.SetIndent("", "  ")
		}
		return encoder.Encode(value)
	case "yaml":
		text, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		_, err = s.env.Out.Write(text)
		return err
	}
	return table(s.env.Out)
}

// table writes rows in columns; colours do not count for a cell's width.
func table(w io.Writer, rows [][]string) error {
	widths := map[int]int{}
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], visibleWidth(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell + strings.Repeat(" ", widths[i]-visibleWidth(cell)+2))
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

var escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

func visibleWidth(cell string) int { return utf8.RuneCountInString(escapes.ReplaceAllString(cell, "")) }

// root is the repository's root: the flag, or the nearest folder above the current one with CUE files in clusters/.
func (s *settings) root() (string, error) {
	if s.repository != "" {
		root := s.absolute(s.repository)
		if !hasSites(root) {
			return "", fmt.Errorf("%s: no CUE files in clusters/; make a repository with berth init", s.repository)
		}
		return root, nil
	}
	for folder := s.env.Directory; ; folder = filepath.Dir(folder) {
		if hasSites(folder) {
			return folder, nil
		}
		if folder == filepath.Dir(folder) {
			return "", fmt.Errorf("no clusters/*.cue here or in any folder above; make a repository with berth init, or name one with --repository")
		}
	}
}

func (s *settings) absolute(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(s.env.Directory, path)
}

func hasSites(root string) bool {
	files, err := filepath.Glob(filepath.Join(root, "clusters", "*.cue"))
	return err == nil && len(files) > 0
}

// checkSchema refuses a repository whose copy of the schema is another berth's: this one would misread its sites.
func (s *settings) checkSchema(root string) error {
	stale, err := schema.Stale(root)
	if err != nil || len(stale) == 0 {
		return err
	}
	return fmt.Errorf("%s: not the schema of this berth (%d files differ); `berth init .` renews it, `berth version` says which berth this is",
		s.shown(schema.VendorDir(root)), len(stale))
}

// sites loads the named sites of the repository, or all of them.
func (s *settings) sites(names []string) (root string, sites []*site.Site, err error) {
	root, opened, err := s.open(names)
	if err != nil {
		return "", nil, err
	}
	return root, opened.Sites, nil
}

// open is sites for those who also ask where things are written.
func (s *settings) open(names []string) (root string, opened *load.Package, err error) {
	if root, err = s.root(); err != nil {
		return "", nil, err
	}
	if err := s.checkSchema(root); err != nil {
		return "", nil, err
	}
	opened, err = load.Open(filepath.Join(root, "clusters"), names...)
	return root, opened, err
}

// parts are what this binary renders with.
func parts() compile.Parts {
	return compile.Parts{Chart: chart.Files, ChartDir: chart.Dir, CRDs: api.CRDs()}
}

// completeSites completes site names from the files in clusters/.
func (s *settings) completeSites(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	root, err := s.root()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	sites, err := load.Load(filepath.Join(root, "clusters"))
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, found := range sites {
		names = append(names, found.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// colour wraps text in a terminal colour where the output is a terminal and NO_COLOR is not set.
func (s *settings) colour(code, text string) string {
	if !s.env.OutTerminal || s.env.Variable("NO_COLOR") != "" || s.env.Variable("TERM") == "dumb" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

const (
	red    = "31"
	green  = "32"
	yellow = "33"
)

// shown is a path as a person would type it.
func (s *settings) shown(path string) string {
	if relative, err := filepath.Rel(s.env.Directory, path); err == nil && !strings.HasPrefix(relative, ".."+string(os.PathSeparator)) {
		return relative
	}
	return path
}
