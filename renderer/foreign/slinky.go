package foreign

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Slinky drafts a site from values of Slinky's slurm chart (slurm-operator's helm/slurm).
func Slinky(file, site, url string) (*Draft, error) {
	v, err := readValues(file)
	if err != nil {
		return nil, err
	}
	d := newDraft()
	d.cluster = v.at("clusterName").text()
	if err := d.controller(v); err != nil {
		return nil, err
	}
	pools := map[string]string{} // node set to pool
	names, sets := v.at("nodesets").members()
	for i, set := range sets {
		if set.at("enabled").text() == "false" {
			set.whole()
			continue
		}
		pool := free(poolName(names[i]), d.pools)
		if err := d.nodeSet(names[i], pool, set); err != nil {
			return nil, err
		}
		pools[names[i]] = pool
	}
	if err := d.slinkyPartitions(v, pools); err != nil {
		return nil, err
	}
	d.logins(v)
	d.notOurs(v)
	d.leftovers(v)
	return d, d.finish(site, url)
}

// controller reads slurm.conf's further lines and what slurmctld keeps.
func (d *Draft) controller(v values) error {
	ctl := v.at("controller")
	if ctl.at("external").on() {
		d.left(ctl.file, ctl.line(), "controller.external", "Berth runs slurmctld itself")
	}
	extra := ctl.at("extraConf").text()
	names, parts := ctl.at("extraConfMap").members()
	c := &conf{d: d, nodes: map[string]*node{}, defaults: map[string]confLine{}}
	own, err := generated()
	if err != nil {
		return err
	}
	if extra == "" {
		for i, p := range parts {
			c.setting(confLine{file: p.file, number: p.line()}, pair{names[i], p.joined()}, own)
		}
	}
	ctl.at("extraConfMap").whole()
	for i, line := range strings.Split(extra, "\n") {
		if line, _, _ = strings.Cut(line, "#"); strings.TrimSpace(line) == "" {
			continue
		}
		at := ctl.at("extraConf").line() + i + 1 // a block of text begins below its key
		pairs, err := splitPairs(strings.TrimSpace(line))
		if err != nil {
			return fmt.Errorf("%s:%d: controller.extraConf: %w", v.file, at, err)
		}
		l := confLine{v.file, at, pairs}
		if key := strings.ToLower(pairs[0].key); key == "nodename" || key == "partitionname" || key == "nodeset" {
			d.left(v.file, at, pairs[0].key+"="+pairs[0].value, "nodes and partitions follow from the pools")
			continue
		}
		for _, p := range pairs {
			c.setting(l, p, own)
		}
	}
	if claim := ctl.at("persistence"); claim.at("enabled").text() != "false" {
		if mib, err := claim.at("resources", "requests", "storage").quantity(1 << 20); err != nil {
			return err
		} else if mib > 0 {
			d.site = append(d.site, setting{"storage.state", size(mib)})
		}
		if class := claim.at("storageClassName").text(); class != "" && class != "-" {
			d.site = append(d.site, setting{"storage.class", text(class)})
		}
	}
	if ctl.at("metrics", "enabled").on() {
		d.site = append(d.site, setting{"monitoring.enabled", "true"})
	}
	ctl.at("metrics").whole()
	return nil
}

// joined is a scalar, or a list's scalars joined by commas.
func (v values) joined() string {
	if list := v.list(); len(list) > 0 {
		return strings.Join(list, ",")
	}
	return v.text()
}

// nodeSet makes a pool of a node set.
func (d *Draft) nodeSet(name, as string, set values) error {
	p := &pool{max: 1}
	if n, is := set.at("replicas").number(); is && n > 0 {
		p.max = min(n, 9999)
	}
	if mode := set.at("scalingMode").text(); strings.EqualFold(mode, "DaemonSet") {
		d.left(set.file, set.at("scalingMode").line(), "nodesets."+name+".scalingMode", "Slurm starts workers as jobs need them; max says how many there can be")
		d.assume("pools."+as+".max", "as many workers as there were nodes")
	}
	limits, requests := set.at("slurmd", "resources", "limits"), set.at("slurmd", "resources", "requests")
	first := func(unit int64, key string) (int64, error) {
		n, err := limits.at(key).quantity(unit)
		if m, errs := requests.at(key).quantity(unit); err == nil && n == 0 {
			n, err = m, errs
		}
		return n, err
	}
	cpus, err := first(1, "cpu")
	if err != nil {
		return err
	}
	if p.mib, err = first(1<<20, "memory"); err != nil {
		return err
	}
	gpus, err := first(1, "nvidia.com/gpu")
	if err != nil {
		return err
	}
	model, shards := "", 0
	p.cpus, p.gpus = int(cpus), int(gpus)
	options := set.conf(d, "nodesets."+name)
	for _, o := range options {
		switch strings.ToLower(o.key) {
		case "features":
			if list := featureList(o.value); len(list) > 0 {
				p.fields = append(p.fields, setting{"features", texts(list)})
			}
		case "gres":
			n := &node{}
			(&conf{d: d}).gresOf(n, o.value)
			p.gpus, model, shards = max(p.gpus, n.gpus), n.model, n.shards
		case "cpus":
			p.cpus = max(p.cpus, atoi(o.value, 0))
		case "realmemory":
			p.mib = max(p.mib, int64(atoi(o.value, 0)))
		default:
			d.left(set.file, set.line(), "nodesets."+name+": "+o.key+"="+o.value, "a pool has no such setting")
		}
	}
	if p.cpus < 1 || p.mib < 1 {
		p.cpus, p.mib = max(p.cpus, 1), max(p.mib, 2048)
		d.assume("pools."+as, "the size of a worker: the node set says no limits for slurmd")
	}
	if p.gpus > 0 && model == "" {
		d.assume("hosts.*.gpus.model", "the model of the cards of pool "+as)
	}
	if shards >= 2*p.gpus && p.gpus > 0 {
		p.fields = append(p.fields, setting{"sharing.shard.count", strconv.Itoa(shards / p.gpus)})
	}
	d.scheduling(set.at("podSpec"), p)
	d.environment(set.at("slurmd", "env"), p)
	d.image(set.at("slurmd", "image"), as)
	d.renewal(set, p)
	d.machines(as, p, cardModel(model))
	d.pools[as] = p
	if part := set.at("partition"); part.at("enabled").on() {
		fields := d.partitionFields(set.file, part.line(), name, part.pairs(d))
		if as == name {
			p.partition = fields
		} else {
			d.overPools(set.file, part.line(), name, []string{as}, fields)
		}
	}
	set.at("partition").whole()
	return nil
}

// conf are a node set's options of slurmd --conf.
func (v values) conf(d *Draft, where string) []pair {
	if extra := v.at("extraConf").text(); extra != "" {
		v.at("extraConfMap").whole()
		pairs, err := splitPairs(strings.Join(strings.Fields(extra), " "))
		if err != nil {
			d.left(v.file, v.at("extraConf").line(), where+".extraConf", err.Error())
		}
		return pairs
	}
	return v.at("extraConfMap").asPairs()
}

// pairs are a partition's options.
func (v values) pairs(d *Draft) []pair {
	if config := v.at("config").text(); config != "" {
		v.at("configMap").whole()
		pairs, err := splitPairs(strings.Join(strings.Fields(config), " "))
		if err != nil {
			d.left(v.file, v.at("config").line(), v.path+".config", err.Error())
		}
		return pairs
	}
	return v.at("configMap").asPairs()
}

func (v values) asPairs() []pair {
	names, parts := v.members()
	var out []pair
	for i, p := range parts {
		value := p.joined()
		switch { // YAML reads a bare YES as true in some versions, and Helm passes it on
		case value == "true":
			value = "YES"
		case value == "false":
			value = "NO"
		}
		out = append(out, pair{names[i], value})
	}
	v.whole()
	return out
}

var labelValue = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$`)

// scheduling reads where a pool's pods may run.
func (d *Draft) scheduling(spec values, p *pool) {
	names, parts := spec.at("nodeSelector").members()
	var selector []string
	for i, part := range parts {
		if value := part.text(); names[i] != "kubernetes.io/os" && labelValue.MatchString(value) {
			selector = append(selector, text(names[i])+": "+text(value))
		}
	}
	if len(selector) > 0 {
		p.fields = append(p.fields, setting{"nodeSelector", "{" + strings.Join(selector, ", ") + "}"})
	}
	_, parts = spec.at("tolerations").members()
	var tolerations []string
	for _, part := range parts {
		var fields []string
		for _, f := range []string{"key", "operator", "value", "effect"} {
			if value := part.at(f).text(); value != "" {
				fields = append(fields, f+": "+text(value))
			}
		}
		if part.at("key").text() != "" || part.at("operator").text() == "Exists" {
			tolerations = append(tolerations, "{"+strings.Join(fields, ", ")+"}")
		}
	}
	if len(tolerations) > 0 {
		p.fields = append(p.fields, setting{"tolerations", "[" + strings.Join(tolerations, ", ") + "]"})
	}
}

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (d *Draft) environment(env values, p *pool) {
	names, parts := env.members()
	var fields []string
	for i, part := range parts {
		switch {
		case part.at("valueFrom").node != nil:
			d.left(part.file, part.line(), part.path, "a pool's environment has values only, no references")
			part.whole()
		case variable.MatchString(names[i]):
			fields = append(fields, text(names[i])+": "+text(part.at("value").text()))
		}
	}
	if len(fields) > 0 {
		p.fields = append(p.fields, setting{"env", "{" + strings.Join(fields, ", ") + "}"})
	}
}

// image notes an image of somebody's own.
func (d *Draft) image(v values, as string) {
	repository := v.at("repository").text()
	if repository == "" {
		repository = v.text()
	}
	if repository != "" && !strings.HasPrefix(repository, "ghcr.io/slinkyproject/") {
		d.left(v.file, v.line(), v.path, "a worker's image is built FROM Berth's slurm-worker; build yours so and name it in pools."+as+".image")
	}
	v.whole()
}

var percent = regexp.MustCompile(`^([1-9][0-9]?|100)%$`)

func (d *Draft) renewal(set values, p *pool) {
	away := set.at("updateStrategy", "rollingUpdate", "maxUnavailable")
	if m := percent.FindStringSubmatch(away.text()); m != nil && m[1] != "25" {
		p.fields = append(p.fields, setting{"renew.percent", m[1]})
	}
	set.at("updateStrategy").whole()
	for _, same := range []string{"workloadDisruptionProtection", "pruneSlurmNodeRecords", "ordinalPadding", "logfile", "enabled"} {
		set.at(same).whole()
	}
}

func (d *Draft) slinkyPartitions(v values, pools map[string]string) error {
	names, parts := v.at("partitions").members()
	for i, part := range parts {
		if part.at("enabled").text() == "false" {
			part.whole()
			continue
		}
		var over []string
		for _, set := range part.at("nodesets").list() {
			switch {
			case set == "ALL":
				over = sorted(d.pools)
			case pools[set] == "":
				return fmt.Errorf("%s:%d: partitions.%s.nodesets: there is no enabled node set %q", v.file, part.line(), names[i], set)
			case !slices.Contains(over, pools[set]):
				over = append(over, pools[set])
			}
		}
		fields := d.partitionFields(v.file, part.line(), names[i], part.pairs(d))
		part.whole()
		if len(over) == 0 || !partitionName.MatchString(names[i]) {
			d.left(v.file, part.line(), "partitions."+names[i], "it has no node set, or a name that a site's partition cannot have")
			continue
		}
		d.overPools(v.file, part.line(), names[i], over, fields)
	}
	return nil
}

// logins reads the first login set that is on.
func (d *Draft) logins(v values) {
	found := false
	names, sets := v.at("loginsets").members()
	for i, set := range sets {
		if !set.at("enabled").on() {
			set.whole()
			continue
		}
		if found {
			d.left(set.file, set.line(), "loginsets."+names[i], "a site has one set of login pods; the first stands")
			set.whole()
			continue
		}
		found = true
		if n, is := set.at("replicas").number(); is && n >= 1 && n <= 20 {
			d.site = append(d.site, setting{"login.replicas", strconv.Itoa(n)})
		}
		port, is := set.at("service", "nodePort").number()
		if !is {
			port, is = set.at("service", "spec", "nodePort").number()
		}
		if is && port >= 30000 && port <= 32767 {
			d.site = append(d.site, setting{"login.nodePort", strconv.Itoa(port)})
		}
		d.image(set.at("login", "image"), "*")
		d.nfs(set.at("podSpec", "volumes"))
		set.at("login", "volumeMounts").whole()
		set.at("service", "spec", "type").text()
		set.at("initconf").whole()
		set.at("podSpec", "nodeSelector").whole()
	}
}

// nfs takes the first NFS volume for the file server.
func (d *Draft) nfs(volumes values) {
	_, parts := volumes.members()
	for _, part := range parts {
		server, path := part.at("nfs", "server").text(), strings.TrimRight(part.at("nfs", "path").text(), "/")
		if server == "" || path == "" || d.sets("storage.nfs") != "" {
			continue
		}
		d.site = append(d.site, setting{"storage.nfs", "{server: " + text(server) + ", path: " + text(path) + ", allowedCIDRs: " + ranges + "}"})
		d.assume("storage.nfs", "the export's own directory, above homes and shared data, and whom it lets in; "+path+" was one mount of it")
		part.whole()
	}
}

// notOurs notes what Slinky's chart has and Berth does by itself or otherwise.
func (d *Draft) notOurs(v values) {
	if v.at("accounting", "enabled").text() == "false" || !v.at("accounting", "enabled").on() {
		if v.at("accounting", "external").on() {
			d.left(v.file, v.at("accounting", "external").line(), "accounting.external", "Berth runs slurmdbd and its database itself; move the old database before the first job")
		}
		v.at("accounting").whole()
	} else {
		d.left(v.file, v.at("accounting").line(), "accounting", "Berth runs slurmdbd and its database itself; move the old database before the first job")
		v.at("accounting").whole()
	}
	for key, why := range map[string]string{
		"configFiles":            "Berth writes Slurm's files; slurm.extraLines takes lines of slurm.conf",
		"prologScripts":          "put them into the worker's image (pools.*.image)",
		"epilogScripts":          "put them into the worker's image (pools.*.image)",
		"prologSlurmctldScripts": "Berth's own waits for nodes there",
		"epilogSlurmctldScripts": "a site has none",
	} {
		if part := v.at(key); part.says() {
			d.left(v.file, part.line(), key, why)
			part.whole()
		}
	}
	// What every pod of Berth has its own of, and the chart's plain settings.
	for _, key := range []string{"asciiArt", "imagePullPolicy", "slurmKey", "jwtKey", "jwksKeys", "priorityClass", "restapi", "sssd", "vendor", "nameOverride", "fullnameOverride", "namespaceOverride"} {
		v.at(key).whole()
	}
	ctl := v.at("controller")
	for _, key := range []string{"external", "externalConfig", "slurmctld", "inplaceReconfigure", "reconfigure", "logfile", "persistence", "podSpec", "service"} {
		ctl.at(key).whole()
	}
	_, sets := v.at("nodesets").members()
	for _, set := range sets {
		set.at("podSpec", "nodeSelector").whole()
	}
}
