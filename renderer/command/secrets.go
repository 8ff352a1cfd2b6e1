package command

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/renderer/secrets"
	"github.com/berth-hpc/berth/renderer/site"
)

func newSecrets(s *settings) *cobra.Command {
	c := &cobra.Command{
		Use:   "secrets",
		Short: "Make and seal a site's secrets",
		Long: `A site's secrets (Slurm's key, the JWT key, the database password, the login's SSH host keys) lie in the repository, sealed by
SOPS for age keys. Flux opens them in the cluster with the identity in the Secret sops-age of its namespace. Keep a copy of that
identity outside of the cluster: without it the secrets are lost.

` + exitCodesHelp,
		Example: `  berth secrets key ../lab.agekey
  berth secrets init lab`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newSecretsInit(s), newSecretsKey(s), newSecretsDoctor(s), newSecretsReseal(s), newSecretsRotate(s))
	return c
}

// secretsSite loads the one site that a secrets command is about. An identity file is named from where the command was typed.
func (s *settings) secretsSite(names []string, identity string) (root string, one *site.Site, file string, err error) {
	root, sites, err := s.sites(names)
	if err != nil {
		return "", nil, "", err
	}
	if identity != "" {
		identity = s.absolute(identity)
	}
	return root, sites[0], identity, nil
}

// secretsReport is what secrets init says.
type secretsReport struct {
	Site       string   `json:"site"`
	Files      []string `json:"files"`
	Recipients []string `json:"recipients"`
	AgeSecret  string   `json:"ageSecret"` // namespace/name of the Secret that Flux opens them with
}

func newSecretsInit(s *settings) *cobra.Command {
	var extra []string
	var identity string
	c := &cobra.Command{
		Use:   "init SITE",
		Short: "Make the site's secrets, once",
		Long: `Init makes all secrets of a site and writes them sealed to clusters/<site>/secrets/. The recipients are those of the site
(secrets.recipients), and any named here. It refuses a site that has secrets: new keys would lock pods and users out.

` + exitCodesHelp,
		Example: `  # For the recipients that the site names
  berth secrets init lab

  # And for one more, or for the owner of an identity file
  berth secrets init lab --recipient age1lggyhqrw2nlhcxprm67z43rta597azn8gknawjehu9d9dl0jq3yqqvfafg
  berth secrets init lab --identity ../lab.agekey`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: s.completeSites,
		RunE: func(_ *cobra.Command, names []string) error {
			root, one, file, err := s.secretsSite(names, identity)
			if err != nil {
				return err
			}
			recipients := append(append([]string{}, one.Secrets.Recipients...), extra...)
			if file != "" {
				recipient, err := secrets.Recipient(file)
				if err != nil {
					return err
				}
				recipients = append(recipients, recipient)
			}
			files, err := secrets.Init(root, one, recipients)
			if err != nil {
				return err
			}
			report := secretsReport{Site: one.Name, Files: files, Recipients: recipients, AgeSecret: one.Namespaces.Flux + "/" + one.Secrets.Names.AgeKey}
			return s.print(report, func(w io.Writer) error {
				for _, file := range files {
					fmt.Fprintln(w, file)
				}
				_, err := fmt.Fprintf(w, `Sealed for %d recipients. Render again (berth render %s) and commit the folder. Flux opens it with the identity in
  kubectl -n %s create secret generic %s --from-file=berth.agekey=IDENTITY_FILE
`, len(recipients), one.Name, one.Namespaces.Flux, one.Secrets.Names.AgeKey)
				return err
			})
		},
	}
	c.Flags().StringSliceVar(&extra, "recipient", nil, "age public key to seal for, besides the site's (can be given again)")
	c.Flags().StringVar(&identity, "identity", "", "age identity file to seal for, besides the site's recipients")
	return c
}

func newSecretsKey(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "key FILE",
		Short: "Make an age key, and say its public half",
		Long: `Key writes a new age identity to FILE, readable by its owner alone, and prints the public key that belongs into the site's
secrets.recipients. Never commit the file; keep a copy where the cluster's end does not reach it.

` + exitCodesHelp,
		Example: `  berth secrets key ../lab.agekey`,
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			recipient, err := secrets.NewKey(s.absolute(args[0]))
			if err != nil {
				return err
			}
			return s.print(map[string]string{"file": args[0], "recipient": recipient}, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, recipient)
				return err
			})
		},
	}
}

func newSecretsDoctor(s *settings) *cobra.Command {
	var identity string
	c := &cobra.Command{
		Use:   "doctor SITE",
		Short: "Say who can read which of the site's secrets",
		Long: `Doctor names, for each sealed file of a site, the age keys that it is sealed for, those among them that are not in the site's
secrets.recipients, and those that are there and cannot read it. With an identity it also tries to open each, which finds files
that were changed after they were sealed. It shows no value.

` + exitCodesHelp,
		Example: `  berth secrets doctor lab
  berth secrets doctor lab --identity ../lab.agekey`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: s.completeSites,
		RunE: func(_ *cobra.Command, names []string) error {
			root, one, file, err := s.secretsSite(names, identity)
			if err != nil {
				return err
			}
			report, err := secrets.Doctor(root, one, file)
			if err != nil {
				return err
			}
			wrong := 0
			for _, one := range report {
				if !one.Right() {
					wrong++
				}
			}
			if err := s.print(report, func(w io.Writer) error { return s.doctorTable(w, report) }); err != nil || wrong == 0 {
				return err
			}
			return problems{fmt.Sprintf("%d %s not as the site says; berth secrets reseal %s seals them for secrets.recipients", wrong, plural(wrong, "file is", "files are"), names[0])}
		},
	}
	c.Flags().StringVar(&identity, "identity", "", "age identity file to try to open them with")
	return c
}

func (s *settings) doctorTable(w io.Writer, report []secrets.Sealed) error {
	for _, one := range report {
		mark := s.colour(green, "ok")
		if !one.Right() {
			mark = s.colour(red, "wrong")
		}
		fmt.Fprintf(w, "%s %s: %s\n", mark, one.File, strings.Join(one.Recipients, ", "))
		for _, r := range one.Strangers {
			fmt.Fprintf(w, "    not in secrets.recipients, and can read it: %s\n", r)
		}
		for _, r := range one.Without {
			fmt.Fprintf(w, "    in secrets.recipients, and cannot read it: %s\n", r)
		}
		if one.Problem != "" {
			fmt.Fprintf(w, "    %s\n", one.Problem)
		}
	}
	return nil
}

func newSecretsReseal(s *settings) *cobra.Command {
	var identity string
	c := &cobra.Command{
		Use:   "reseal SITE",
		Short: "Seal the site's secrets for its recipients of today",
		Long: `Reseal opens the site's secrets with an identity that can read them, and seals them for secrets.recipients: for one who came, and
no longer for one who went. The values stay, and a file that exactly these can read keeps its bytes. Who could read the secrets
before may know them: history holds the old files.

` + exitCodesHelp,
		Example:           `  berth secrets reseal lab --identity ../lab.agekey`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: s.completeSites,
		RunE: func(_ *cobra.Command, names []string) error {
			root, one, file, err := s.secretsSite(names, identity)
			if err != nil {
				return err
			}
			files, err := secrets.Reseal(root, one, file)
			if err != nil {
				return err
			}
			return s.print(map[string]any{"site": names[0], "files": append([]string{}, files...)}, func(w io.Writer) error {
				for _, file := range files {
					fmt.Fprintln(w, file)
				}
				_, err := fmt.Fprintf(w, "%d files sealed anew.\n", len(files))
				return err
			})
		},
	}
	c.Flags().StringVar(&identity, "identity", "", "age identity file that can read them now")
	return c
}

func newSecretsRotate(s *settings) *cobra.Command {
	var identity string
	var finish bool
	c := &cobra.Command{
		Use:   "rotate SITE",
		Short: "Replace Slurm's key, without losing a job",
		Long: `Rotate makes the key that waited in the site's key set the one that Slurm's daemons sign with, and puts a new one in its place.
The one before stays valid: daemons may read the new set in any order, and jobs that run go on. Once no job runs that began before
the rotation, --finish drops the old key. Each is one commit. Sites that were made with a single key get their set by the first
rotation, and sign with another key from the second on.

It changes Slurm's key alone, in the files of both namespaces; all other files keep their bytes, and nobody new can read these.

` + exitCodesHelp,
		Example: `  berth secrets rotate lab --identity ../lab.agekey

  # Days later, when the jobs of before have ended
  berth secrets rotate lab --identity ../lab.agekey --finish`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: s.completeSites,
		RunE: func(_ *cobra.Command, names []string) error {
			root, one, file, err := s.secretsSite(names, identity)
			if err != nil {
				return err
			}
			var report secrets.Rotation
			if finish {
				report, err = secrets.Finish(root, one, file)
			} else {
				report, err = secrets.Rotate(root, one, file, time.Now())
			}
			if err != nil {
				return err
			}
			return s.print(report, func(w io.Writer) error { return rotationText(w, report, finish) })
		},
	}
	c.Flags().StringVar(&identity, "identity", "", "age identity file that can read the site's secrets")
	c.Flags().BoolVar(&finish, "finish", false, "drop the keys that signed before the last rotation")
	return c
}

func rotationText(w io.Writer, r secrets.Rotation, finish bool) error {
	for _, file := range r.Files {
		fmt.Fprintln(w, file)
	}
	var err error
	switch {
	case finish && len(r.Files) == 0:
		_, err = fmt.Fprintf(w, "Nothing to drop: %s signs, and no older key is valid.\n", r.Signs)
	case finish:
		_, err = fmt.Fprintf(w, "%s signs, and no older key is valid. Commit and push.\n", r.Signs)
	case r.Published:
		_, err = fmt.Fprintf(w, `The site had a single key, which still signs. Its set holds a second one now, for daemons to know before it is used.
Commit and push; rotate again once no job runs that began before.
`)
	default:
		_, err = fmt.Fprintf(w, `%s signs; %s stay valid. Commit and push. Once no job runs that began before:
  berth secrets rotate %s --identity FILE --finish
`, r.Signs, strings.Join(r.Old, ", "), r.Site)
	}
	return err
}
