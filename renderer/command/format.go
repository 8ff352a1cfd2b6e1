package command

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/format"
	"cuelang.org/go/cue/parser"
	"github.com/google/renameio/v2"
	"github.com/pmezard/go-difflib/difflib"
	"github.com/spf13/cobra"
)

// formatted is what fmt says of one file.
type formatted struct {
	File    string `json:"file"`
	Changed bool   `json:"changed"` // written, or with --check or --diff: would be
	Diff    string `json:"diff,omitempty"`
}

func newFormat(s *settings) *cobra.Command {
	var check, diff bool
	c := &cobra.Command{
		Use:   "fmt [SITE|FILE...]",
		Short: "Write the sites' files in CUE's standard form",
		Long: `Fmt writes the files of the named sites, the named files, or all in clusters/, in the form of cue fmt: indentation,
alignment, line breaks. It changes no value and keeps comments. A file that cannot be parsed is an error with its place, and then no file is written.

With --check nothing is written: the files that would change are named, and the exit code is 1 if there are any. --diff also
shows how.

` + exitCodesHelp,
		Example: `  berth fmt
  berth fmt --check
  berth fmt --diff clusters/lab.cue
  berth fmt lab`,
		ValidArgsFunction: s.completeSites,
		RunE: func(_ *cobra.Command, files []string) error {
			files, err := s.cueFiles(files)
			if err != nil {
				return err
			}
			reports, changed, err := s.format(files, !check && !diff, diff)
			if err != nil {
				return err
			}
			err = s.print(reports, func(w io.Writer) error {
				for _, r := range reports {
					if r.Diff != "" {
						fmt.Fprint(w, r.Diff)
					} else if r.Changed {
						fmt.Fprintln(w, r.File)
					}
				}
				return nil
			})
			if err == nil && changed > 0 && (check || diff) {
				return problems{fmt.Sprintf("%d %s not in standard form; berth fmt writes %s so", changed, plural(changed, "file is", "files are"), plural(changed, "it", "them"))}
			}
			return err
		},
	}
	c.Flags().BoolVar(&check, "check", false, "write nothing; name the files that would change")
	c.Flags().BoolVar(&diff, "diff", false, "write nothing; show what would change")
	return c
}

// cueFiles are the named files, those of the named sites, or all of the repository's clusters/, as a person would type them.
func (s *settings) cueFiles(names []string) ([]string, error) {
	var files, sites []string
	for _, name := range names {
		if info, err := os.Stat(s.absolute(name)); strings.HasSuffix(name, ".cue") || err == nil && !info.IsDir() {
			files = append(files, name)
		} else {
			sites = append(sites, name)
		}
	}
	if len(names) > 0 && len(sites) == 0 {
		return files, nil
	}
	root, err := s.root()
	if err != nil {
		return nil, err
	}
	found, err := filepath.Glob(filepath.Join(root, "clusters", "*.cue"))
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(file string) bool { // vet says what is wrong with a pipe; reading it would wait for ever
		info, err := os.Stat(file)
		return err == nil && !info.Mode().IsRegular()
	})
	for _, site := range sites {
		those := siteFiles(found, site)
		if len(those) == 0 {
			return nil, fmt.Errorf("%s: neither a file nor a site: no file of clusters/ has the field %s", site, site)
		}
		for _, file := range those {
			if shown := s.shown(file); !slices.Contains(files, shown) {
				files = append(files, shown)
			}
		}
	}
	if len(names) > 0 {
		return files, nil
	}
	for i, file := range found {
		found[i] = s.shown(file)
	}
	return found, nil
}

// siteFiles are the files in which a site is a field. One that does not parse is told from its name.
func siteFiles(files []string, site string) []string {
	return slices.DeleteFunc(slices.Clone(files), func(file string) bool {
		parsed, err := parser.ParseFile(file, nil)
		if err != nil {
			return filepath.Base(file) != site+".cue"
		}
		return !slices.ContainsFunc(parsed.Decls, func(d ast.Decl) bool {
			field, is := d.(*ast.Field)
			if !is {
				return false
			}
			name, _, err := ast.LabelName(field.Label)
			return err == nil && name == site
		})
	})
}

// format formats all files in memory, and then writes those that differ.
func (s *settings) format(files []string, write, diff bool) (reports []formatted, changed int, err error) {
	after := make([][]byte, len(files))
	for i, file := range files {
		before, err := os.ReadFile(s.absolute(file))
		if err != nil {
			return nil, 0, err
		}
		parsed, err := parser.ParseFile(file, before, parser.ParseComments)
		if err == nil {
			after[i], err = format.Node(parsed)
		}
		if err != nil {
			return nil, 0, atPlace(file, err)
		}
		r := formatted{File: file, Changed: !bytes.Equal(before, after[i])}
		if r.Changed {
			changed++
			if diff {
				r.Diff, err = difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
					A: difflib.SplitLines(string(before)), B: difflib.SplitLines(string(after[i])), FromFile: "a/" + file, ToFile: "b/" + file, Context: 2,
				})
				if err != nil {
					return nil, 0, err
				}
			}
		}
		reports = append(reports, r)
	}
	for i, file := range files {
		if !write || !reports[i].Changed {
			continue
		}
		if err := replaceFile(s.absolute(file), after[i]); err != nil {
			return nil, 0, err
		}
	}
	return reports, changed, nil
}

// replaceFile writes a file that exists, whole or not at all; through a link, what it links to.
func replaceFile(path string, text []byte) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return renameio.WriteFile(path, text, info.Mode().Perm())
}

// atPlace words the first error of a CUE file that cannot be parsed, with its place. Other errors stay as they are.
func atPlace(file string, err error) error {
	var ofCUE errors.Error
	if !errors.As(err, &ofCUE) {
		return err
	}
	for _, e := range errors.Errors(err) {
		message, args := e.Msg()
		if pos := e.Position(); pos.IsValid() {
			return fmt.Errorf("%s:%d:%d: %s", file, pos.Line(), pos.Column(), fmt.Sprintf(message, args...))
		}
	}
	return fmt.Errorf("%s: %w", file, err)
}
