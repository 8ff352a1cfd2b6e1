package load_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	schema "github.com/berth-hpc/berth/cue"
	"github.com/berth-hpc/berth/renderer/load"
	"github.com/berth-hpc/berth/renderer/site"
)

func TestShippedSites(t *testing.T) {
	sites, err := load.Load("../../clusters")
	if err != nil {
		t.Fatal(err)
	}
	byName := make(map[string]*site.Site)
	for _, s := range sites {
		byName[s.Name] = s
	}

	lab := byName["lab"]
	if p := lab.Pools["gpu-rtx4070"]; p.Model != "rtx4070" || p.Speed != 1.3 || p.GPUMemory != "12Gi" || p.Sharing.MPS.Share != 25 || p.Sharing.MPS.Users != "trusted" {
		t.Errorf("lab: gpu-rtx4070 is %+v", p)
	}
	if lab.Advisor.Topology != "rtx4070:1x1,rtx3080:1x1" {
		t.Errorf("lab: topology is %q; the fastest card comes first", lab.Advisor.Topology)
	}
	if lab.Storage.Type != "nfs" || lab.Storage.NFS.Server != "192.168.0.111" || lab.Advisor.Mode != "shadow" || !lab.Monitoring.Enabled {
		t.Errorf("lab: %+v %+v", lab.Storage, lab.Advisor)
	}

	box := byName["lab-box"]
	if box.Variant != "box" || box.VariantOf != "lab" || box.Storage.Type != "local" || box.Images.PullPolicy != "Never" {
		t.Errorf("lab-box: %+v", box)
	}
	for name, h := range box.Hosts {
		if h.Node != "box" {
			t.Errorf("lab-box: host %s is node %s", name, h.Node)
		}
	}
	if len(box.Pools) != len(lab.Pools) {
		t.Errorf("lab-box has %d pools, lab %d", len(box.Pools), len(lab.Pools))
	}

	campus := byName["campus"]
	if len(campus.Pools) != 8 || campus.Advisor.Topology != "h100:3x8,a100:2x4,a100:8x1,l40s:8x1,l40s:8x1" {
		t.Errorf("campus: %d pools, topology %q", len(campus.Pools), campus.Advisor.Topology)
	}
	if campus.Delivery.SecretRef != "campus-git" || lab.Delivery.SecretRef != "flux-system" || byName["laptop"].Delivery.SecretRef != "" {
		t.Error("a secret for the repository is what the site says, flux-system for ssh, none else")
	}
}

// The shipped sites are examples: the lab's fits a screen, and the smallest useful one is about 25 lines.
func TestSitesAreShort(t *testing.T) {
	for name, limit := range map[string]int{"lab": 50, "laptop": 25} {
		text, err := os.ReadFile(filepath.Join("../../clusters", name+".cue"))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "\n"); n > limit {
			t.Errorf("%s.cue has %d lines, more than %d", name, n, limit)
		}
	}
}

func TestOneSiteOfSeveral(t *testing.T) {
	dir := repository(t, map[string]string{
		"good.cue": smallest("good"),
		"bad.cue":  strings.Replace(smallest("bad"), "cpus: 8", "cpus: 0", 1),
	})
	sites, err := load.Load(dir, "good")
	if err != nil || len(sites) != 1 || sites[0].Name != "good" {
		t.Errorf("a site is held up by another's mistake: %v %v", sites, err)
	}
	if _, err := load.Load(dir); err == nil {
		t.Error("a wrong site passes")
	}
	if _, err := load.Load(dir, "goood"); err == nil || !strings.Contains(err.Error(), `there is no site "goood"; did you mean "good"? (known: bad, good)`) {
		t.Errorf("an unknown name: %v", err)
	}
}

// A site that is asked for by its name is the same as among all, whatever of the package it is made from.
func TestANamedSiteNeedsOnlyWhatItIsMadeOf(t *testing.T) {
	text := smallest("a") + `
_size: {memory: c.pools.cpu.memory}
let called = "d"
"d-1": site.#Site & {
	for k, v in a if k != "cluster" {(k): v}
	cluster: name: called
}
b: site.#Site & {
	for k, v in a if k != "cluster" {(k): v}
	cluster: name: "b"
	users: two: {uid: 1001, account: "work"}
	slurm: extraLines: ["TmpFS=/" + _size.memory]
}
`
	dir := repository(t, map[string]string{"a.cue": text, "c.cue": smallest("c")})
	for _, where := range []string{dir, "../../clusters"} {
		all, err := load.Load(where)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range all {
			got, err := load.Load(where, want.Name)
			if err != nil || len(got) != 1 || !reflect.DeepEqual(got[0], want) {
				t.Errorf("%s alone is another site (%v)", want.Name, err)
			}
		}
	}
}

// All mistakes come at once, also those that CUE hides behind others, each at its line and in the order of the file.
func TestAllMistakesAtOnce(t *testing.T) {
	text := smallest("lab") + `
lab: pools: gpu: {max: 2, cpus: 2, memroy: "4Gi", hosts: ["hostt"], sharing: mps: {share: 25, users: "none"}}
lab: users: ann: {account: "wrok"}
lab: users: bob: {uid: "5", shell: "sh", keys: ["x"]}
lab: pools: sharing: mps: share: 25
lab: slurm: maxTime: "1d"
lab: cluster: name: "other"
`
	dir := repository(t, map[string]string{"lab.cue": text})
	_, err := load.Load(dir)
	var problems load.Problems
	if !errors.As(err, &problems) {
		t.Fatal(err)
	}
	var got []string
	for _, p := range problems {
		got = append(got, strings.TrimPrefix(p.String(), dir+"/"))
	}
	want := `lab.cue:20:36: lab.pools.gpu.memroy: there is no field "memroy" here; did you mean "memory"?
lab.cue:20:102: lab.pools.gpu.sharing.mps.users: users must be one of: one, trusted
lab.cue:21:13: lab.users.ann.uid: "uid" is missing; it is: Number of the user, as the files on the lab's file server have it; 1000 or more, never given to another later
lab.cue:22:24: lab.users.bob.uid: not a number for a user or group; use 1000 or more, but not 64030 to 64035 (the platform's own in the images) or 65534, 65535 (nobody)
lab.cue:22:36: lab.users.bob.shell: not a shell; write an absolute path, for example /bin/bash
lab.cue:22:49: lab.users.bob.keys[0]: not an SSH public key; paste one line of a .pub file, for example ssh-ed25519 AAAA… name@host
lab.cue:22:13: lab.users.bob.account: "account" is missing; it is: Default account
lab.cue:23:22: lab.pools.sharing.mps: there is no field "mps" here; sharing is a field of each member of pools; write pools: <name>: sharing: …
lab.cue:24:13: lab.slurm.maxTime: there is no field "maxTime" here; it belongs in pools.<name>.partition or slurm.partitions.<name>
lab.cue:25:21: lab.cluster.name: is set twice, to "other" and to "lab"`
	for _, line := range strings.Split(want, "\n") {
		if !strings.Contains(strings.Join(got, "\n"), line) {
			t.Errorf("missing: %s", line)
		}
	}
	if len(got) != strings.Count(want, "\n")+1 {
		t.Errorf("said:\n%s", strings.Join(got, "\n"))
	}
}

func TestWhatCUECannotRefuse(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"no site":    {"package clusters\n\nlab: {pools: {}}\n", "lab.cue:3:1: lab: is not a site: nothing in it is checked; write `lab: site.#Site & {…}`"},
		"a path":     {smallest(`"../lab"`), `cannot be a site's name, which is also a directory's`},
		"helper":     {smallest("lab") + "\n_x: 3\n", ""},
		"syntax":     {"package clusters\n\nlab: {\n", "lab.cue:3"},
		"reference":  {smallest("lab") + "\nlab: cluster: name: nothing\n", `lab.cue:20:21: lab.cluster.name: reference "nothing" not found`},
		"no package": {"lab: 1\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := repository(t, map[string]string{"lab.cue": c.text})
			_, err := load.Load(dir)
			switch {
			case c.want == "" && name == "helper" && err != nil:
				t.Error(err)
			case name != "helper" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("said %v, want %q", err, c.want)
			}
		})
	}
	if _, err := load.Load(t.TempDir()); err == nil {
		t.Error("an empty directory passes")
	}
	if _, err := load.Load("no-such-directory"); err == nil {
		t.Error("a directory that does not exist passes")
	}
}

// The cue command itself agrees, in a lab's own repository with the schema as berth puts it there, and without a network.
func TestCueCommandAgrees(t *testing.T) {
	cue, err := filepath.Abs("../../bin/cue")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(cue); err != nil {
		if cue, err = exec.LookPath("cue"); err != nil {
			t.Skip("no cue command; build it with: go build -o bin/cue cuelang.org/go/cmd/cue")
		}
	}
	for name, c := range map[string]struct {
		text, want, line string
	}{
		"right":       {smallest("lab"), "", ""},
		"wrong value": {strings.Replace(smallest("lab"), "cpus: 8", "cpus: 0", 1), "lab.hosts.host.cpus: must be a whole number, 1 to 65533", "lab.cue:8:47"},
		"wrong rule":  {strings.Replace(smallest("lab"), "max: 3", "max: 9", 1), "pool cpu: 9 workers do not fit; its hosts (host) hold 4", "lab.cue:9:20"},
		"typo":        {strings.Replace(smallest("lab"), "cpus: 8", "cpu: 8", 1), "lab.hosts.host.cpu: field not allowed", "lab.cue:8:41"},
		"missing":     {strings.Replace(smallest("lab"), "cpus: 8, ", "", 1), "lab.hosts.host.cpus: field is required but not present", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := repository(t, map[string]string{"lab.cue": c.text})
			command := exec.Command(cue, "vet", "-c", "./clusters")
			command.Dir = filepath.Dir(dir)
			// A proxy that nobody listens on: a fetch would fail.
			command.Env = append(os.Environ(), "HTTPS_PROXY=http://127.0.0.1:1", "HTTP_PROXY=http://127.0.0.1:1", "CUE_CACHE_DIR="+t.TempDir())
			out, err := command.CombinedOutput()
			_, loadErr := load.Load(dir)
			if (err == nil) != (loadErr == nil) || (err == nil) != (c.want == "") {
				t.Fatalf("cue says %v, load says %v\n%s", err, loadErr, out)
			}
			if !strings.Contains(string(out), c.want) || !strings.Contains(string(out), c.line) {
				t.Errorf("cue says\n%s\nwant %q at %s", out, c.want, c.line)
			}
		})
	}
}

// repository makes a lab's own repository with these files in clusters/, and returns that directory.
func repository(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	if err := schema.Vendor(root); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "clusters")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// smallest is about the smallest useful site: one host, one pool, one user.
func smallest(name string) string {
	return `package clusters

import "github.com/berth-hpc/berth/cue:site"

` + name + `: site.#Site & {
	cluster: name: "lab"
	network: lan:  "192.168.1.0/24"
	hosts: host: {address: "192.168.1.20", cpus: 8, memory: "16Gi"}
	pools: cpu: {max: 3, cpus: 2, memory: "4Gi"}
	accounts: work: {}
	users: me: {uid: 1000, account: "work"}
	storage: {
		local: path: "/var/lib/berth"
		home:   "20Gi"
		shared: "20Gi"
	}
	delivery: url: "https://github.com/berth-hpc/laptop.git"
}
`
}

// Fields beside the sites are vetted with them, as the cue command does: a wrong helper is refused though no site uses it.
func TestHelpersAreVetted(t *testing.T) {
	for text, want := range map[string]string{
		"_shared: {memory: \"4Gi\"}": "",
		"#Small: {max: 2, ...}":      "",
		"_shared: 1 & 2":             "lab.cue:20:10: _shared: conflicting values 2 and 1",
		"#Small: {max: 1 & \"x\"}":   "#Small.max: ",
	} {
		dir := repository(t, map[string]string{"lab.cue": smallest("lab") + "\n" + text + "\n"})
		_, err := load.Load(dir)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: said %v, want %q", text, err, want)
		}
	}
}

// A site that is no box is told of at its own lines, whatever its variantOf says.
func TestVariantOfWithoutABox(t *testing.T) {
	box := "package clusters\n\nimport \"github.com/berth-hpc/berth/cue:site\"\n\n\"lab-box\": site.#Box & {#of: lab, variantOf: \"LAB\"}\n"
	both := repository(t, map[string]string{"lab.cue": strings.Replace(smallest("lab"), `"192.168.1.20"`, "int", 1), "lab-box.cue": box})
	if _, err := load.Load(both); err == nil || !strings.Contains(err.Error(), "lab.cue:8:25: lab.hosts.host.address: ") || strings.Contains(err.Error(), "LAB") {
		t.Errorf("a box of no site: said %v", err)
	}
	text := strings.Replace(smallest("lab"), "uid: 1000", "uid: -1000", 1) + "\nlab: variantOf: \"other\"\n"
	dir := repository(t, map[string]string{"lab.cue": text})
	_, err := load.Load(dir)
	if err == nil || !strings.HasPrefix(err.Error(), dir+"/lab.cue:11:19: lab.users.me.uid: not a number for a user") || strings.Contains(err.Error(), "missing") {
		t.Errorf("said %v", err)
	}
}

// A value that is still open is told of where it is written, also in what a box is derived from.
func TestUndecided(t *testing.T) {
	for text, want := range map[string]string{
		`lab: cluster: domain: "a.example" | "b.example"`:     `lab.cue:20:23: lab.cluster.domain: can still be any of "a.example" | "b.example"; write one of them`,
		`box: site.#Box & {#of: "8" | "9", variantOf: "lab"}`: `lab.cue:20:24: box.#of: can still be any of "8" | "9"; write one of them`,
		`box: site.#Box & {variantOf: "lab"}`:                 `lab.cue:20:1: box.#of: "#of" is missing; write the site that this is the box of, for example #of: lab`,
		`_x: _, lab: cluster: domain: _x.domain`:              `lab.cue:20:30: lab.cluster.domain: undefined field: domain`,
	} {
		dir := repository(t, map[string]string{"lab.cue": smallest("lab") + "\n" + text + "\n"})
		if _, err := load.Load(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: said %v, want %q", text, err, want)
		}
	}
}
