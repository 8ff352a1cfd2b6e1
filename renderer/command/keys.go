package command

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"github.com/berth-hpc/berth/renderer/edit"
	"github.com/berth-hpc/berth/renderer/load"
)

func newKeys(s *settings) *cobra.Command {
	c := &cobra.Command{
		Use:   "keys",
		Short: "Give a user of a site an SSH key",
		Long: `Users log in with the SSH keys that the site names (users.<name>.keys).

` + exitCodesHelp,
		Example: `  berth keys add student ../student.pub --site lab`,
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newKeysAdd(s))
	return c
}

// keysReport is what keys add says.
type keysReport struct {
	Site  string   `json:"site"`
	User  string   `json:"user"`
	File  string   `json:"file,omitempty"` // that was changed; "" where nothing was to do
	Added []string `json:"added"`
}

func newKeysAdd(s *settings) *cobra.Command {
	var siteName string
	c := &cobra.Command{
		Use:   "add USER KEYFILE",
		Short: "Write a public key into the site's file",
		Long: `Add puts the public keys of KEYFILE, one a line (- is standard input), into users.<USER>.keys of the site's file. Comments and
everything else of the file stay as they are; keys that the user has already are left out. The changed site is vetted, and the file
is put back where it would be wrong. Then render, commit and push.

` + exitCodesHelp,
		Example: `  berth keys add student ../student.pub --site lab`,
		Args:    cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			keys, err := s.readKeys(args[1])
			if err != nil {
				return err
			}
			var names []string
			if siteName != "" {
				names = []string{siteName}
			}
			report, err := s.addKeys(names, args[0], keys)
			if err != nil {
				return err
			}
			return s.print(report, func(w io.Writer) error {
				if len(report.Added) == 0 {
					_, err := fmt.Fprintf(w, "%s has these keys already\n", report.User)
					return err
				}
				_, err := fmt.Fprintf(w, "%s: added to the keys of %s: %d; berth render %s, commit and push\n", report.File, report.User, len(report.Added), report.Site)
				return err
			})
		},
	}
	addSiteFlag(c, s, &siteName, "site whose user it is (default: the only one)")
	return c
}

// readKeys reads public keys, one a line; empty lines and comments are left out.
func (s *settings) readKeys(file string) ([]string, error) {
	const most = 1 << 20 // more is no file of keys
	var from io.Reader = s.env.In
	if file != "-" {
		opened, err := os.Open(s.absolute(file))
		if err != nil {
			return nil, err
		}
		defer opened.Close()
		from = opened
	}
	text, err := io.ReadAll(io.LimitReader(from, most))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	if strings.Contains(string(text), "PRIVATE KEY") {
		return nil, fmt.Errorf("%s: a private key, which belongs to its owner alone; give the .pub file beside it", file)
	}
	var keys []string
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") && !slices.Contains(keys, line) {
			if _, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line)); err != nil {
				return nil, fmt.Errorf("%s:%d: not an SSH public key; give the .pub file that ssh-keygen made, one key a line", file, number)
			}
			keys = append(keys, line)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s: holds no key; give a .pub file", file)
	}
	return keys, nil
}

// addKeys writes the keys that the user does not have yet.
func (s *settings) addKeys(names []string, user string, keys []string) (*keysReport, error) {
	one, err := s.oneSite(names)
	if err != nil {
		return nil, err
	}
	person, known := one.Users[user]
	if !known {
		return nil, fmt.Errorf("%s.users: no user %q; known: %s", one.Name, user, strings.Join(slices.Sorted(maps.Keys(one.Users)), ", "))
	}
	report := &keysReport{Site: one.Name, User: user, Added: []string{}}
	for _, key := range keys {
		if !slices.ContainsFunc(person.Keys, func(has string) bool { return sameKey(has, key) }) {
			report.Added = append(report.Added, key)
		}
	}
	if len(report.Added) == 0 {
		return report, nil
	}
	root, opened, err := s.open([]string{one.Name})
	if err != nil {
		return nil, err
	}
	// Beside the user's other keys, or else where the user is.
	at, _ := opened.Of([]string{one.Name, "users", user, "keys"})
	file := at.File
	if file == "" {
		file = filepath.Join("clusters", one.Name+".cue")
	} else if !filepath.IsAbs(file) {
		file, err = filepath.Abs(file) // places are relative to this process
		if err != nil {
			return nil, err
		}
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(root, file)
	}
	report.File = s.shown(file)
	before, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	after, err := edit.Append(file, before, []string{one.Name, "users", user, "keys"}, report.Added)
	if err != nil {
		return nil, err
	}
	return report, replaceVetted(file, before, after, func() error {
		_, err := load.Load(filepath.Join(root, "clusters"))
		return err
	})
}

// sameKey compares kind and key, not the comment behind them.
func sameKey(a, b string) bool {
	x, y := strings.Fields(a), strings.Fields(b)
	return len(x) > 1 && len(y) > 1 && x[0] == y[0] && x[1] == y[1]
}

// replaceVetted writes a file, and puts the old text back where the sites are wrong with the new one.
func replaceVetted(file string, before, after []byte, vet func() error) error {
	if err := renameio.WriteFile(file, after, 0o644, renameio.WithExistingPermissions()); err != nil {
		return err
	}
	if wrong := vet(); wrong != nil {
		if err := renameio.WriteFile(file, before, 0o644, renameio.WithExistingPermissions()); err != nil {
			return errors.Join(wrong, fmt.Errorf("put %s back: %w", file, err))
		}
		return fmt.Errorf("%s stays as it was, because with the keys it would be wrong: %w", file, wrong)
	}
	return nil
}
