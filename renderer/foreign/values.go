package foreign

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
)

// values is a part of a file of Helm values, which knows where it stands and which parts of it were read.
type values struct {
	file string
	path string
	row  int // the line of its key
	node *yaml.Node
	read map[*yaml.Node]bool
}

// readValues reads one YAML document that is a map.
func readValues(file string) (values, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return values{}, err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return values{}, fmt.Errorf("%s: %w", filepath.Base(file), err)
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return values{}, fmt.Errorf("%s: not a map of values", filepath.Base(file))
	}
	return values{file: filepath.Base(file), node: document.Content[0], read: map[*yaml.Node]bool{}}, nil
}

// at is the part below the path; its node is nil where there is none. Aliases are followed.
func (v values) at(steps ...string) values {
	for _, step := range steps {
		v.path = strings.TrimPrefix(v.path+"."+step, ".")
		var found *yaml.Node
		if v.node != nil && v.node.Kind == yaml.MappingNode {
			for i := 0; i+1 < len(v.node.Content); i += 2 {
				if v.node.Content[i].Value == step {
					found, v.row = v.node.Content[i+1], v.node.Content[i].Line
				}
			}
		}
		if found != nil && found.Kind == yaml.AliasNode {
			found = found.Alias
		}
		v.node = found
	}
	return v
}

// any is the first of the paths, each joined by dots, that is there.
func (v values) any(paths ...string) values {
	for _, path := range paths {
		if found := v.at(strings.Split(path, ".")...); found.text() != "" || found.node != nil && found.node.Kind != yaml.ScalarNode {
			return found
		}
	}
	return values{file: v.file, path: paths[0], read: v.read}
}

// text is a scalar, "" for none and for null; it marks the part as read.
func (v values) text() string {
	if v.node == nil || v.node.Kind != yaml.ScalarNode || v.node.Tag == "!!null" {
		return ""
	}
	v.read[v.node] = true
	return v.node.Value
}

// whole marks the part and all below it as read.
func (v values) whole() values {
	var mark func(n *yaml.Node)
	mark = func(n *yaml.Node) {
		v.read[n] = true
		for _, inner := range n.Content {
			mark(inner)
		}
	}
	if v.node != nil {
		mark(v.node)
	}
	return v
}

func (v values) on() bool { return strings.EqualFold(v.text(), "true") }

func (v values) line() int {
	if v.row == 0 && v.node != nil {
		return v.node.Line
	}
	return v.row
}

// number is a whole number, and whether there is one.
func (v values) number() (int, bool) {
	n, err := strconv.Atoi(v.text())
	return n, err == nil
}

// quantity is a Kubernetes quantity: whole units for CPUs and cards, MiB for memory, rounded up.
func (v values) quantity(unit int64) (int64, error) {
	t := v.text()
	if t == "" {
		return 0, nil
	}
	q, err := resource.ParseQuantity(t)
	if err != nil || q.Sign() < 0 {
		return 0, fmt.Errorf("%s:%d: %s: %q is not a quantity", v.file, v.line(), v.path, t)
	}
	return (q.Value() + unit - 1) / unit, nil
}

// members are the parts of a map by name, in their order, or of a list, with the name that each says.
func (v values) members() (names []string, parts []values) {
	if v.node == nil {
		return nil, nil
	}
	switch v.node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(v.node.Content); i += 2 {
			names = append(names, v.node.Content[i].Value)
			parts = append(parts, v.at(v.node.Content[i].Value))
		}
	case yaml.SequenceNode:
		for i, n := range v.node.Content {
			one := values{v.file, v.path + "[" + strconv.Itoa(i) + "]", n.Line, n, v.read}
			names = append(names, one.at("name").text())
			parts = append(parts, one)
		}
	}
	return names, parts
}

// list are a list's scalars.
func (v values) list() []string {
	var out []string
	_, parts := v.members()
	for _, p := range parts {
		if t := p.text(); t != "" {
			out = append(out, t)
		}
	}
	return out
}

// leftovers notes what nobody read and that says something: neither null, nor empty, nor off.
func (d *Draft) leftovers(v values) {
	switch {
	case v.node == nil || v.read[v.node] && v.node.Kind == yaml.ScalarNode:
	case v.node.Kind == yaml.MappingNode && v.touched():
		_, parts := v.members()
		for _, p := range parts {
			d.leftovers(p)
		}
	case v.says():
		d.left(v.file, v.line(), v.path, "a site has no counterpart of it")
	}
}

// touched reports whether something of the part was read.
func (v values) touched() bool {
	if v.path == "" || v.read[v.node] {
		return true
	}
	_, parts := v.members()
	for _, p := range parts {
		if p.node != nil && p.touched() {
			return true
		}
	}
	return false
}

func (v values) says() bool {
	if v.node == nil || v.read[v.node] {
		return false
	}
	switch v.node.Kind {
	case yaml.ScalarNode:
		return v.node.Tag != "!!null" && v.node.Value != "" && v.node.Value != "false"
	default:
		_, parts := v.members()
		for _, p := range parts {
			if p.says() {
				return true
			}
		}
	}
	return false
}

// machines stand for the hosts of a pool, of which Helm values say nothing: as many as workers, eight at most.
func (d *Draft) machines(name string, p *pool, model string) {
	count := min(p.max, 8)
	each := (p.max + count - 1) / count
	if p.gpus > 0 && each*p.gpus > 64 { // a site's host has 64 cards at most
		each = max(1, 64/p.gpus)
		count = (p.max + each - 1) / each
	}
	for i := range count {
		host := &host{cpus: p.cpus * each, mib: p.mib * int64(each), gpus: p.gpus * each}
		if p.gpus > 0 {
			host.model = model
		}
		hostName := free(name+"-"+strconv.Itoa(i+1), d.hosts)
		d.hosts[hostName] = host
		p.hosts = append(p.hosts, hostName)
	}
	d.assume("hosts", fmt.Sprintf("the machines of pool %s: %d are made up, each for %d of its workers", name, count, each))
}
