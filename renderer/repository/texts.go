package repository

import (
	"fmt"
	"regexp"
	"strings"

	schema "github.com/berth-hpc/berth/cue"
	"github.com/berth-hpc/berth/renderer/secrets"
)

// firstSite is a site that vets and renders as it is: one machine, one pool, one user. Its owner changes names and addresses.
func firstSite(o Options) string {
	recipients := ""
	if len(o.Recipients) > 0 {
		recipients = fmt.Sprintf("\tsecrets: recipients: [%s]\n", quoted(o.Recipients))
	}
	secretRef := ""
	if strings.HasPrefix(o.URL, "ssh://") {
		secretRef = "\n\t\t// The Secret with the SSH key that Flux reads the repository with.\n\t\tsecretRef: \"flux-system\""
	}
	return fmt.Sprintf(`package clusters

import "%s:site"

// Change names, addresses and sizes to what you have; every other field has a default.
"%s": site.#Site & {
	cluster: name: "%s"
	network: lan:  "192.168.0.0/24"
	hosts: node1: {address: "192.168.0.10", cpus: 8, memory: "16Gi"}
	pools: cpu: {max: 2, cpus: 2, memory: "4Gi", partition: default: true}
	accounts: lab: {}
	users: student: {uid: 2001, account: "lab"}
	storage: {
		// Directories state, database, home and shared on that host. For more than one host: nfs instead.
		local: path: "/var/lib/berth"
		home:   "100Gi"
		shared: "100Gi"
	}
%s	delivery: {
		url: "%s"%s
	}
}
`, schema.ImportPath, o.Site, o.Site, recipients, o.URL, secretRef)
}

func quoted(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = `"` + s + `"`
	}
	return strings.Join(out, ", ")
}

// sopsConfig lets the sops command seal further secrets the way berth does.
func sopsConfig(recipients []string) string {
	return fmt.Sprintf(`creation_rules:
  - path_regex: clusters/.*/secrets/.*\.yaml$
    encrypted_regex: %s
    age: %s
`, secrets.EncryptedFields, strings.Join(recipients, ","))
}

func readme(site string) string {
	fence := "```"
	return fmt.Sprintf(`# %[1]s

A Slurm cluster on Kubernetes, described by clusters/%[1]s.cue and kept true by Flux from this repository.

Change the site, look at what changes, push:

%[2]s
berth vet
berth render
git add -A && git commit -m "Say what and why" && git push
%[2]s

| folder | what |
|---|---|
| clusters/%[1]s.cue | the site; the only file you edit |
| clusters/%[1]s/ | Flux's entry points (generated) and sealed secrets |
| overlays/%[1]s/ | what Flux applies, layer by layer (generated) |
| overlays/%[1]s/patches/<layer>/ | your own patches, kept by berth |
| cue.mod, components/chart | the schema and the chart of your berth; berth init . renews them |

The first time: berth secrets key ../%[1]s.agekey makes the key that opens the secrets (keep a copy elsewhere, never commit it),
its public half goes into secrets.recipients of the site, and berth secrets init %[1]s makes the secrets. On the cluster, with
Flux installed:

%[2]s
kubectl -n flux-system create secret generic sops-age --from-file=berth.agekey=../%[1]s.agekey
kubectl apply -k clusters/%[1]s
%[2]s
`, site, fence)
}

var release = regexp.MustCompile(`^v\d+\.\d+\.\d+$`)

// workflow is the lab's own check of every push, by the berth that rendered the repository: another one may render otherwise.
func workflow(version string) string {
	if !release.MatchString(version) {
		version = "latest"
	}
	return fmt.Sprintf(`name: site
on: [push, pull_request]
permissions:
  contents: read
jobs:
  check:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-go@v5
        with:
          go-version: "1.26"
      # The berth that rendered what is committed: change it together with "berth init .".
      - run: go install github.com/berth-hpc/berth/renderer/cmd/berth@%s
      - run: go install cuelang.org/go/cmd/cue@v0.17.1
      - run: cue vet -c ./clusters
      - run: berth vet
      - run: berth render --check
`, version)
}
