package foreign

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"

	schema "github.com/berth-hpc/berth/cue"
	"github.com/berth-hpc/berth/renderer/compile/slurmconf"
)

// pair is one Key=Value of a line.
type pair struct{ key, value string }

// confLine is a line of a Slurm file, continuation lines joined.
type confLine struct {
	file   string
	number int
	pairs  []pair
}

func (l confLine) get(key string) string {
	for _, p := range l.pairs {
		if strings.EqualFold(p.key, key) {
			return p.value
		}
	}
	return ""
}

// Slurm drafts a site from a slurm.conf and, where there is one, a gres.conf.
func Slurm(slurmConf, gresConf, site, url string) (*Draft, error) {
	lines, err := readConf(slurmConf)
	if err != nil {
		return nil, err
	}
	var cards []confLine
	if gresConf != "" {
		if cards, err = readConf(gresConf); err != nil {
			return nil, err
		}
	}
	d := newDraft()
	c := &conf{d: d, nodes: map[string]*node{}}
	if err := c.cards(cards); err != nil {
		return nil, err
	}
	if err := c.lines(lines); err != nil {
		return nil, err
	}
	if err := c.pools(); err != nil {
		return nil, err
	}
	return d, d.finish(site, url)
}

// readConf reads the lines of a Slurm file.
func readConf(file string) ([]confLine, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var out []confLine
	joined, start := "", 0
	for i, raw := range strings.Split(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n") {
		if at := commentAt(raw); at >= 0 {
			raw = raw[:at]
		}
		if joined == "" {
			start = i + 1
		}
		if continued, is := strings.CutSuffix(strings.TrimRight(raw, " \t"), `\`); is {
			joined += continued + " "
			continue
		}
		line := strings.TrimSpace(joined + raw)
		joined = ""
		if line == "" {
			continue
		}
		pairs, err := splitPairs(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", filepath.Base(file), start, err)
		}
		out = append(out, confLine{filepath.Base(file), start, pairs})
	}
	return out, nil
}

// commentAt is where a comment starts: a # that no backslash precedes.
func commentAt(line string) int {
	for i := range len(line) {
		if line[i] == '#' && (i == 0 || line[i-1] != '\\') {
			return i
		}
	}
	return -1
}

var pairPattern = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9_]*)\s*=\s*("[^"]*"|\S*)\s*`)

func splitPairs(line string) ([]pair, error) {
	if word, path, is := strings.Cut(line, " "); is && strings.EqualFold(word, "include") {
		return []pair{{"Include", strings.TrimSpace(path)}}, nil
	}
	var pairs []pair
	for rest := line; rest != ""; {
		m := pairPattern.FindStringSubmatch(rest)
		if m == nil {
			return nil, fmt.Errorf("%q is not Key=Value", rest)
		}
		pairs = append(pairs, pair{m[1], strings.Trim(m[2], `"`)})
		rest = rest[len(m[0]):]
	}
	return pairs, nil
}

// node is a NodeName of slurm.conf.
type node struct {
	name, address string
	cpus          int
	mib           int64
	gpus, mps     int
	shards        int
	model         string
	features      string
	partitions    []string
}

// card is a line of gres.conf about cards, or about their shares.
type card struct {
	nodes []string // nil: all
	kind  string   // gpu, mps or shard
	model string
	count int
}

type conf struct {
	d          *Draft
	nodes      map[string]*node
	order      []string
	gres       []card
	partitions []confLine
	defaults   map[string]confLine // of NodeName=DEFAULT and PartitionName=DEFAULT
	idle       string
}

// cards reads gres.conf.
func (c *conf) cards(lines []confLine) error {
	for _, l := range lines {
		kind := strings.ToLower(l.get("Name"))
		if kind != "gpu" && kind != "mps" && kind != "shard" {
			c.d.left(l.file, l.number, l.pairs[0].key+"="+l.pairs[0].value, "Berth writes gres.conf from the pools' cards, and knows gpu, mps and shard")
			continue
		}
		one := card{kind: kind, model: l.get("Type")}
		if names := l.get("NodeName"); names != "" {
			nodes, err := expand(names)
			if err != nil {
				return fmt.Errorf("%s:%d: %w", l.file, l.number, err)
			}
			one.nodes = nodes
		}
		if files := l.get("File"); files != "" && kind == "gpu" {
			names, err := expand(files)
			if err != nil {
				return fmt.Errorf("%s:%d: %w", l.file, l.number, err)
			}
			one.count = len(names)
		}
		if n, err := strconv.Atoi(l.get("Count")); err == nil {
			one.count = n
		}
		c.gres = append(c.gres, one)
	}
	return nil
}

// lines reads slurm.conf.
func (c *conf) lines(lines []confLine) error {
	c.defaults = map[string]confLine{}
	own, err := generated()
	if err != nil {
		return err
	}
	for _, l := range lines {
		switch key := strings.ToLower(l.pairs[0].key); key {
		case "nodename":
			if err := c.node(l); err != nil {
				return fmt.Errorf("%s:%d: %w", l.file, l.number, err)
			}
		case "partitionname":
			if l.pairs[0].value == "DEFAULT" {
				c.defaults["partition"] = l
				continue
			}
			c.partitions = append(c.partitions, l)
		default:
			for _, p := range l.pairs {
				c.setting(l, p, own)
			}
		}
	}
	return nil
}

// generated are the keys of slurm.conf that Berth writes, in small letters, as the schema has them.
func generated() ([]string, error) {
	files, err := schema.Files()
	if err != nil {
		return nil, err
	}
	file, err := parser.ParseFile("slurm.cue", files["slurm.cue"])
	if err != nil {
		return nil, err
	}
	var keys []string
	ast.Walk(file, func(n ast.Node) bool {
		field, is := n.(*ast.Field)
		if !is {
			return true
		}
		if name, _, _ := ast.LabelName(field.Label); name != "_generated" {
			return false
		}
		list, _ := field.Value.(*ast.ListLit)
		for _, e := range list.Elts {
			if key, is := e.(*ast.BasicLit); is {
				keys = append(keys, strings.Trim(key.Value, `"`))
			}
		}
		return false
	}, nil)
	return keys, nil
}

func (c *conf) node(l confLine) error {
	if l.pairs[0].value == "DEFAULT" {
		c.defaults["node"] = l
		return nil
	}
	names, err := expand(l.pairs[0].value)
	if err != nil {
		return err
	}
	get := func(key string) string {
		if v := l.get(key); v != "" {
			return v
		}
		return c.defaults["node"].get(key)
	}
	addresses := []string{}
	if a := get("NodeAddr"); a != "" {
		if addresses, err = expand(a); err != nil {
			return err
		}
	}
	cpus := atoi(get("CPUs"), 0)
	if cpus == 0 {
		cpus = atoi(get("Sockets"), atoi(get("Boards"), 1)) * atoi(get("CoresPerSocket"), 1) * atoi(get("ThreadsPerCore"), 1)
		if n := atoi(get("SocketsPerBoard"), 0); n > 0 {
			cpus = atoi(get("Boards"), 1) * n * atoi(get("CoresPerSocket"), 1) * atoi(get("ThreadsPerCore"), 1)
		}
	}
	mib := int64(atoi(get("RealMemory"), 0))
	if mib == 0 {
		mib = int64(cpus) * 1024
		c.d.assume("hosts."+label(names[0], 63)+".memory", "slurm.conf has no RealMemory for it; 1 GiB a CPU stands there")
	}
	for i, name := range names {
		if c.nodes[name] != nil {
			return fmt.Errorf("node %s is defined twice", name)
		}
		n := &node{name: name, cpus: cpus, mib: mib, features: get("Features") + get("Feature")}
		if i < len(addresses) {
			n.address = addresses[i]
		}
		c.gresOf(n, get("Gres"))
		c.nodes[name] = n
		c.order = append(c.order, name)
	}
	for _, p := range l.pairs[1:] {
		switch strings.ToLower(p.key) {
		case "weight":
			c.d.left(l.file, l.number, "Weight="+p.value, "Berth orders nodes by the speed of their cards (hosts.*.gpus.speed)")
		case "state":
			if !strings.EqualFold(p.value, "UNKNOWN") && !strings.EqualFold(p.value, "CLOUD") && !strings.EqualFold(p.value, "IDLE") {
				c.d.left(l.file, l.number, "State="+p.value, "a node's state is slurmctld's; leave the host out, or drain the node")
			}
		case "tmpdisk", "port", "nodehostname", "bcastaddr", "corespeccount", "cpuspeclist", "memspeclimit", "reason", "restrictedcorespergpu", "topology":
			c.d.left(l.file, l.number, p.key+"="+p.value, "workers are pods, for which it has no meaning")
		}
	}
	return nil
}

func atoi(s string, otherwise int) int {
	if n, err := strconv.Atoi(s); err == nil {
		return n
	}
	return otherwise
}

// gresOf reads the cards of a node from Gres=gpu:rtx4070:2,mps:200 and from gres.conf.
func (c *conf) gresOf(n *node, gres string) {
	for _, part := range strings.Split(gres, ",") {
		part, _, _ = strings.Cut(part, "(")
		words := strings.Split(part, ":")
		count, model := 1, ""
		if last := words[len(words)-1]; len(words) > 1 && regexp.MustCompile(`^[0-9]+$`).MatchString(last) {
			count, words = atoi(last, 1), words[:len(words)-1]
		}
		if len(words) > 1 {
			model = words[1]
		}
		n.take(card{kind: strings.ToLower(words[0]), model: model, count: count})
	}
	for _, one := range c.gres {
		if one.nodes != nil && !slices.Contains(one.nodes, n.name) {
			continue
		}
		if one.nodes == nil && gres == "" {
			continue // gres.conf speaks of the nodes that have a Gres
		}
		if one.kind == "gpu" && n.gpus > 0 { // slurm.conf has said how many
			if n.model == "" {
				n.model = one.model
			}
			continue
		}
		n.take(one)
	}
}

func (n *node) take(one card) {
	switch one.kind {
	case "gpu":
		n.gpus += one.count
		if n.model == "" {
			n.model = one.model
		}
	case "mps":
		n.mps = max(n.mps, one.count)
	case "shard":
		n.shards = max(n.shards, one.count)
	}
}

// pools makes pools of equal nodes that the same partitions have, and partitions over them.
func (c *conf) pools() error {
	members := map[string][]string{}
	for _, l := range c.partitions {
		names, err := c.partitionNodes(l)
		if err != nil {
			return fmt.Errorf("%s:%d: %w", l.file, l.number, err)
		}
		members[l.pairs[0].value] = names
		for _, name := range names {
			c.nodes[name].partitions = append(c.nodes[name].partitions, l.pairs[0].value)
		}
	}
	groups := map[string][]*node{}
	var keys []string
	for _, name := range c.order {
		n := c.nodes[name]
		key := fmt.Sprint(n.cpus, n.mib, n.gpus, n.mps, n.shards, n.model, n.features, n.partitions)
		if groups[key] == nil {
			keys = append(keys, key)
		}
		groups[key] = append(groups[key], n)
	}
	poolOf := map[string]string{} // node to pool
	whole := map[string]string{}  // partition that has exactly one group, to its pool
	for _, key := range keys {
		nodes := groups[key]
		name := ""
		for _, p := range nodes[0].partitions {
			if len(members[p]) == len(nodes) && poolName(p) == p && c.d.pools[p] == nil {
				name = p
				whole[p] = p
				break
			}
		}
		if name == "" {
			name = free(poolName(strings.TrimRight(nodes[0].name, "0123456789-_")), c.d.pools)
		}
		c.pool(name, nodes)
		for _, n := range nodes {
			poolOf[n.name] = name
		}
	}
	for _, l := range c.partitions {
		c.partition(l, members[l.pairs[0].value], poolOf, whole)
	}
	return nil
}

func (c *conf) partitionNodes(l confLine) ([]string, error) {
	list := l.get("Nodes")
	if list == "" {
		list = c.defaults["partition"].get("Nodes")
	}
	if strings.EqualFold(list, "ALL") {
		return c.order, nil
	}
	if list == "" {
		return nil, nil
	}
	names, err := expand(list)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if c.nodes[name] == nil {
			return nil, fmt.Errorf("partition %s: no NodeName line defines node %s", l.pairs[0].value, name)
		}
	}
	return names, nil
}

func (c *conf) pool(name string, nodes []*node) {
	first := nodes[0]
	p := &pool{max: len(nodes), cpus: first.cpus, mib: first.mib, gpus: first.gpus}
	model := cardModel(first.model)
	if first.gpus > 0 && first.model == "" {
		c.d.assume("hosts.*.gpus.model", "slurm.conf names no type for the cards of "+first.name)
	}
	for _, n := range nodes {
		hostName := free(label(n.name, 63), c.d.hosts)
		c.d.hosts[hostName] = &host{address: n.address, cpus: n.cpus, mib: n.mib, gpus: n.gpus, model: model}
		p.hosts = append(p.hosts, hostName)
	}
	if c.idle != "" {
		p.fields = append(p.fields, setting{"idle", c.idle})
	}
	if list := featureList(first.features); len(list) > 0 {
		p.fields = append(p.fields, setting{"features", texts(list)})
	}
	switch {
	case first.mps > 0 && first.gpus == 1:
		p.fields = append(p.fields, setting{"sharing.mps.share", "25"})
		c.d.assume("pools."+name+".sharing.mps.share", "percent of a card in one share; slurm.conf does not say")
	case first.mps > 0:
		c.d.left("gres.conf", 1, "mps on "+first.name, fmt.Sprintf("a worker that shares its card by MPS owns exactly one, and this node has %d", first.gpus))
	case first.shards >= 2*first.gpus && first.gpus > 0:
		p.fields = append(p.fields, setting{"sharing.shard.count", strconv.Itoa(first.shards / first.gpus)})
	}
	c.d.pools[name] = p
}

var notInModel = regexp.MustCompile(`[^a-z0-9._-]+`)

func cardModel(model string) string {
	if model = strings.Trim(notInModel.ReplaceAllString(strings.ToLower(model), "-"), "-._"); model == "" {
		return "gpu"
	}
	return model
}

var feature = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.=-]*$`)

func featureList(list string) []string {
	var out []string
	for _, f := range strings.Split(list, ",") {
		if feature.MatchString(f) && !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}

// duration is seconds as a site writes them, or one of Slurm's times.
func duration(value string) (string, bool) {
	if n, err := strconv.Atoi(value); err == nil {
		return text(strconv.Itoa(n) + "s"), n > 0
	}
	t, err := slurmconf.ParseTime(value)
	return text(value), err == nil && !strings.EqualFold(value, "UNLIMITED") && !strings.EqualFold(value, "INFINITE") && t != slurmconf.Seconds(0)
}
