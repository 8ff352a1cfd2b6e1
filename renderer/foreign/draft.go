// Package foreign reads descriptions of a cluster that other tools go by (Slinky's chart, flat Helm values, slurm.conf) and drafts a
// site from them, together with what it could not carry over and what it had to assume. It writes no file.
package foreign

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/format"
	"cuelang.org/go/cue/literal"
)

// Note is something of the source that the draft does not hold (with its place), or a field that the source does not say and
// somebody must look at (with the field's path).
type Note struct {
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	What string `json:"what"`
	Why  string `json:"why"`
}

// String is the note on one line.
func (n Note) String() string {
	if n.File == "" {
		return n.What + ": " + n.Why
	}
	return fmt.Sprintf("%s:%d: %s: %s", n.File, n.Line, n.What, n.Why)
}

// Draft is a site in the making.
type Draft struct {
	cluster string
	lan     string
	pods    string
	url     string

	hosts      map[string]*host
	pools      map[string]*pool
	partitions map[string]*partition
	accounts   map[string]bool
	qos        map[string]bool
	slurm      []setting // fields of slurm, in order
	lines      []string  // slurm.extraLines
	site       []setting // further fields of the site

	Left    []Note // not carried over
	Assumed []Note // to be looked at
}

type host struct {
	address string
	cpus    int
	mib     int64
	gpus    int
	model   string
}

type pool struct {
	max, cpus int
	mib       int64
	gpus      int
	hosts     []string
	fields    []setting
	partition []setting
}

type partition struct {
	pools  []string
	fields []setting
}

// ranges stands for the site's LAN and pod ranges in a setting, until they are known.
const ranges = "RANGES"

// setting is a field, its path joined by dots, with its value as CUE.
type setting struct{ path, value string }

func newDraft() *Draft {
	return &Draft{
		hosts: map[string]*host{}, pools: map[string]*pool{}, partitions: map[string]*partition{}, accounts: map[string]bool{}, qos: map[string]bool{},
	}
}

func (d *Draft) left(file string, line int, what, why string) {
	d.Left = append(d.Left, Note{file, line, what, why})
}

func (d *Draft) assume(field, why string) { d.Assumed = append(d.Assumed, Note{What: field, Why: why}) }

func text(s string) string { return literal.String.Quote(s) }

// field is a name as a field's, quoted where CUE would read it otherwise.
func field(name string) string {
	if plainField.MatchString(name) && !slices.Contains([]string{"for", "if", "in", "let", "null", "true", "false", "import", "package"}, name) {
		return name
	}
	return text(name)
}

var plainField = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*$`)

func texts(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = text(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

func size(mib int64) string {
	if mib%1024 == 0 {
		return text(strconv.FormatInt(mib/1024, 10) + "Gi")
	}
	return text(strconv.FormatInt(mib, 10) + "Mi")
}

// CUE is the draft as a file of package clusters.
func (d *Draft) CUE(site, from string) ([]byte, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "package clusters\n\nimport \"github.com/berth-hpc/berth/cue:site\"\n\n// Imported from %s. The source does not say these; put in what is right:\n", from)
	for _, n := range d.Assumed {
		fmt.Fprintf(&b, "//  - %s\n", strings.ReplaceAll(n.String(), "\n", " "))
	}
	fmt.Fprintf(&b, "%s: site.#Site & {\n\tcluster: name: %s\n\tnetwork: {lan: %s", field(site), text(d.cluster), text(d.lan))
	if d.pods != "" {
		fmt.Fprintf(&b, ", pods: %s", text(d.pods))
	}
	b.WriteString("}\n\thosts: {\n")
	for _, name := range sorted(d.hosts) {
		h := d.hosts[name]
		fmt.Fprintf(&b, "\t\t%s: {address: %s, cpus: %d, memory: %s", field(name), text(h.address), h.cpus, size(h.mib))
		if h.gpus > 0 {
			fmt.Fprintf(&b, ", gpus: {model: %s, count: %d, memory: \"16Gi\"}", text(h.model), h.gpus)
		}
		b.WriteString("}\n")
	}
	b.WriteString("\t}\n\tpools: {\n")
	for _, name := range sorted(d.pools) {
		p := d.pools[name]
		fmt.Fprintf(&b, "\t\t%s: {\n\t\t\tmax: %d\n\t\t\thosts: %s\n\t\t\tcpus: %d\n\t\t\tmemory: %s\n", field(name), p.max, texts(p.hosts), p.cpus, size(p.mib))
		if p.gpus > 0 {
			fmt.Fprintf(&b, "\t\t\tgpus: %d\n", p.gpus)
		}
		settings(&b, p.fields)
		for _, s := range p.partition {
			fmt.Fprintf(&b, "partition: %s: %s\n", s.path, s.value)
		}
		b.WriteString("\t\t}\n")
	}
	b.WriteString("\t}\n\tslurm: {\n")
	settings(&b, d.slurm)
	for _, name := range sorted(d.partitions) {
		p := d.partitions[name]
		fmt.Fprintf(&b, "partitions: %s: {\npools: %s\n", field(name), texts(p.pools))
		settings(&b, p.fields)
		b.WriteString("}\n")
	}
	for _, name := range sorted(d.qos) {
		fmt.Fprintf(&b, "qos: %s: {}\n", field(name))
	}
	if len(d.lines) > 0 {
		b.WriteString("extraLines: [\n")
		for _, line := range d.lines {
			fmt.Fprintf(&b, "%s,\n", text(line))
		}
		b.WriteString("]\n")
	}
	b.WriteString("}\n")
	for _, name := range sorted(d.accounts) {
		fmt.Fprintf(&b, "accounts: %s: {}\n", field(name))
	}
	settings(&b, d.site)
	fmt.Fprintf(&b, "delivery: url: %s\n}\n", text(d.url))
	return format.Source([]byte(b.String()))
}

func settings(b *strings.Builder, list []setting) {
	for _, s := range list {
		fmt.Fprintf(b, "%s: %s\n", strings.ReplaceAll(s.path, ".", ": "), s.value)
	}
}

func sorted[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// finish sorts the notes and fills in what a site cannot be without.
func (d *Draft) finish(site, url string) error {
	if len(d.pools) == 0 {
		return fmt.Errorf("the source names no nodes from which a pool could be made")
	}
	if d.url = url; url == "" {
		d.url = "https://git.example.org/" + site + ".git"
		d.assume("delivery.url", "where Flux finds the repository")
	}
	if d.cluster = clusterName(d.cluster); d.cluster == "" {
		d.cluster = clusterName(site)
		d.assume("cluster.name", "Slurm's ClusterName, if the cluster has one already")
	}
	d.addresses()
	if d.sets("storage.nfs") == "" {
		d.site = append(d.site, setting{"storage.nfs", `{server: "192.0.2.2", path: "/srv/berth", allowedCIDRs: ` + ranges + `}`})
		d.assume("storage.nfs", "the lab's file server; or storage.local, on one host")
	}
	for i := range d.site {
		d.site[i].value = strings.Replace(d.site[i].value, ranges, texts([]string{d.lan, cmp.Or(d.pods, defaultPods)}), 1)
	}
	if len(d.accounts) == 0 {
		d.assume("accounts, users", "nobody may submit jobs yet; Slurm's database and the passwd of the old cluster have them")
	} else {
		d.assume("accounts, users", "the accounts are those that partitions name; users, shares and limits are in the old cluster's database")
	}
	for _, h := range d.hosts {
		if h.gpus > 0 {
			d.assume("hosts.*.gpus.memory", "the memory of a card; and speed, relative to other models")
			break
		}
	}
	slices.SortStableFunc(d.Left, func(a, b Note) int { return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line) })
	return nil
}

// sets is the value of a further field of the site, or of one below it.
func (d *Draft) sets(path string) string {
	for _, s := range d.site {
		if s.path == path || strings.HasPrefix(s.path, path+".") {
			return s.value
		}
	}
	return ""
}
