package command

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/berth-hpc/berth/renderer/secrets"
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
	c.AddCommand(newSecretsInit(s), newSecretsKey(s))
	return c
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
			root, sites, err := s.sites(names)
			if err != nil {
				return err
			}
			one := sites[0]
			recipients := append(append([]string{}, one.Secrets.Recipients...), extra...)
			if identity != "" {
				recipient, err := secrets.Recipient(s.absolute(identity))
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
